// Gantt chart: executions on workers over time, on a canvas, and as a list for screen readers.

import { type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import type { BarView } from "../api/schema.gen";
import { lanes } from "../lib/lanes";
import { go, pageOf } from "../lib/router";
import { toneOf } from "../lib/status";
import { colours } from "../lib/theme";
import { between, clockTime, exact, length, short } from "../lib/time";
import { type Cell, cellText, heightOf } from "../lib/timelineBuckets";
import { Status } from "./basics";
import { shortened } from "./GraphView";

const LANE_PX = 16;
const LEAST_LANE_PX = 3;
/** A worker with many executions at once gets thinner bars. */
const ROW_PX_MAX = 144;
const GAP_PX = 8;
const AXIS_PX = 24;
/** Buckets instead of bars: as high as two bars, or one if there are many workers. */
const CROWD_PX = 32;
const CROWD_PX_LEAST = 16;
const MANY_LANES = 40;
const NAMES = [
  "good",
  "bad",
  "busy",
  "wait",
  "off",
  "card",
  "ink",
  "soft",
  "line",
  "faint",
] as const;

/** A reservation, drawn like an execution. */
export const RESERVED = "reserved";

export type Bar = Pick<BarView, "job_id" | "name" | "status" | "start" | "end">;

export interface Lane {
  worker_id: string;
  name: string;
  bars: Bar[];
  /** Buckets, where there are too many executions for bars. */
  cells?: Cell[];
}

export function Gantt(props: {
  lanes: readonly Lane[];
  start: number;
  end: number;
  now: number;
  /** Whether counts are estimated. */
  estimated?: boolean;
  onZoom: (start: number, end: number, workerId?: string) => void;
}) {
  const { start, end, now } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [over, setOver] = useState<Bar | Cell | null>(null);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const [width, setWidth] = useState(0);
  const left = width < 560 ? 70 : 140;
  const rows = useMemo(() => laidOut(props.lanes, now), [props.lanes, now]);
  const height = AXIS_PX + rows.reduce((sum, row) => sum + row.height, 0) + 4;
  const xOf = (time: number) => left + ((time - start) / (end - start)) * (width - left - 8);
  const timeOf = (x: number) =>
    start + ((x - left) / Math.max(1, width - left - 8)) * (end - start);

  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const sized = new ResizeObserver(() => setWidth(element.clientWidth));
    sized.observe(element);
    return () => sized.disconnect();
  }, []);

  // biome-ignore lint/correctness/useExhaustiveDependencies: xOf is made of what is named
  useEffect(() => {
    const element = canvas.current;
    if (!element || !width) return;
    const frame = requestAnimationFrame(() =>
      paint(element, { rows, start, end, now, left, width, height, xOf, over, drag }),
    );
    return () => cancelAnimationFrame(frame);
  }, [rows, start, end, now, width, height, over, drag]);

  const find = (event: PointerEvent<HTMLCanvasElement>): Bar | Cell | null => {
    const box = event.currentTarget.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    for (const row of rows) {
      if (y < row.top || y >= row.top + row.height) continue;
      for (const bar of row.bars) {
        if (y < bar.top || y >= bar.top + bar.px) continue;
        if (x >= xOf(bar.from) - 1 && x <= Math.max(xOf(bar.to), xOf(bar.from) + 3)) return bar.bar;
      }
      if (y < row.top + row.crowd)
        return row.cells.find((cell) => x >= xOf(cell.from) && x < xOf(cell.to)) ?? null;
    }
    return null;
  };
  const xIn = (event: PointerEvent<HTMLCanvasElement>) =>
    event.clientX - event.currentTarget.getBoundingClientRect().left;
  return (
    <div className="gantt">
      <canvas
        ref={canvas}
        className={over ? "pointing" : ""}
        style={{ height }}
        data-bars={counted(props.lanes, false)}
        data-reserved={counted(props.lanes, true)}
        data-cells={props.lanes.reduce((sum, lane) => sum + (lane.cells?.length ?? 0), 0)}
        role="img"
        aria-label={`Executions on ${props.lanes.length} workers from ${exact(start)} to ${exact(end)}`}
        onPointerDown={(event) => setDrag({ from: xIn(event), to: xIn(event) })}
        onPointerMove={(event) => {
          if (drag) setDrag({ ...drag, to: xIn(event) });
          else setOver(find(event));
        }}
        onPointerUp={(event) => {
          if (drag && Math.abs(drag.to - drag.from) > 8) {
            const [from, to] = [drag.from, drag.to].sort((a, b) => a - b) as [number, number];
            props.onZoom(timeOf(from), timeOf(to));
          } else {
            const found = find(event);
            if (found && "job_id" in found) go(pageOf.job(found.job_id));
            else if (found) props.onZoom(found.from, found.to, found.worker_id);
          }
          setDrag(null);
        }}
        onPointerLeave={() => {
          setOver(null);
          setDrag(null);
        }}
      />
      <p className="gantt-over small" role="status">
        {over && "began" in over ? (
          <>
            <strong>{nameOf(props.lanes, over.worker_id)}</strong>{" "}
            {cellText(over, props.estimated ?? false)}; click to zoom in
          </>
        ) : over ? (
          <>
            <Status of={over.status} /> <strong>{over.name}</strong>{" "}
            {over.status === RESERVED ? "from about " : ""}
            {exact(over.start)}, for {length(between(over.start, over.end, now))}
          </>
        ) : (
          <span className="soft">
            Drag to zoom in. Click a bar to open its job, a count to zoom into its interval.
          </span>
        )}
      </p>
    </div>
  );
}

const counted = (lanes: readonly Lane[], reserved: boolean): number =>
  lanes.reduce(
    (sum, lane) => sum + lane.bars.filter((bar) => (bar.status === RESERVED) === reserved).length,
    0,
  );

const nameOf = (lanes: readonly Lane[], id: string): string =>
  lanes.find((lane) => lane.worker_id === id)?.name ?? id;

interface Span {
  bar: Bar;
  from: number;
  to: number;
}

interface Laid extends Span {
  top: number;
  px: number;
}

interface Row {
  name: string;
  top: number;
  height: number;
  bars: Laid[];
  cells: readonly Cell[];
  /** The height of the buckets; bars are drawn below them. */
  crowd: number;
}

function laidOut(all: readonly Lane[], now: number): Row[] {
  let top = AXIS_PX;
  const high = all.length > MANY_LANES ? CROWD_PX_LEAST : CROWD_PX;
  return all.map((lane) => {
    const crowd = lane.cells?.length ? high : 0;
    const spans = lane.bars.map((bar) => ({
      bar,
      from: Date.parse(bar.start),
      to: bar.end ? Date.parse(bar.end) : now,
    }));
    // Reservations lie in the future, where there are no executions: they use the whole row.
    const ran = stacked(
      spans.filter(({ bar }) => bar.status !== RESERVED),
      top + crowd,
    );
    const kept = stacked(
      spans.filter(({ bar }) => bar.status === RESERVED),
      top + crowd,
    );
    const height = Math.max(LANE_PX, crowd + Math.max(ran.height, kept.height)) + GAP_PX;
    const bars = [...ran.bars, ...kept.bars];
    const row = { name: lane.name, top, height, bars, cells: lane.cells ?? [], crowd };
    top += height;
    return row;
  });
}

/** Overlapping bars below each other, thinner if there are many. */
function stacked(spans: readonly Span[], top: number): { bars: Laid[]; height: number } {
  const { places, count } = lanes(spans);
  const px = Math.max(
    LEAST_LANE_PX,
    Math.min(LANE_PX, Math.floor(ROW_PX_MAX / Math.max(1, count))),
  );
  const bars = spans.map((span, at) => ({ ...span, top: top + (places[at] ?? 0) * px, px }));
  return { bars, height: count * px };
}

interface Scene {
  rows: readonly Row[];
  start: number;
  end: number;
  now: number;
  left: number;
  width: number;
  height: number;
  xOf: (time: number) => number;
  over: Bar | Cell | null;
  drag: { from: number; to: number } | null;
}

function paint(element: HTMLCanvasElement, scene: Scene): void {
  const ratio = devicePixelRatio || 1;
  element.width = scene.width * ratio;
  element.height = scene.height * ratio;
  const pen = element.getContext("2d");
  if (!pen) return;
  const paints = colours(element.parentElement ?? element, NAMES);
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  paintAxis(pen, scene, paints);
  for (const [at, row] of scene.rows.entries()) {
    if (at % 2) {
      pen.fillStyle = paints.faint;
      pen.fillRect(0, row.top - GAP_PX / 2, scene.width, row.height);
    }
    pen.fillStyle = paints.ink;
    pen.fillText(shortened(row.name, scene.left < 100 ? 9 : 20), 4, row.top + LANE_PX / 2);
  }
  pen.save();
  pen.beginPath();
  pen.rect(scene.left, AXIS_PX, scene.width - scene.left, scene.height);
  pen.clip();
  const most = Math.max(0, ...scene.rows.flatMap((row) => row.cells.map((cell) => cell.began)));
  for (const row of scene.rows) {
    for (const cell of row.cells) paintCell(pen, scene, row, cell, heightOf(cell, most), paints);
    for (const bar of row.bars) paintBar(pen, scene, bar, paints);
  }
  const here = Math.round(scene.xOf(scene.now)) + 0.5;
  pen.strokeStyle = paints.bad;
  pen.setLineDash([3, 3]);
  pen.beginPath();
  pen.moveTo(here, AXIS_PX - 4);
  pen.lineTo(here, scene.height);
  pen.stroke();
  pen.restore();
  if (scene.drag) {
    pen.globalAlpha = 0.15;
    pen.fillStyle = paints.busy;
    pen.fillRect(scene.drag.from, AXIS_PX, scene.drag.to - scene.drag.from, scene.height);
  }
}

type Paints = Record<(typeof NAMES)[number], string>;

function paintBar(pen: CanvasRenderingContext2D, scene: Scene, bar: Laid, paints: Paints): void {
  const from = Math.max(scene.left, scene.xOf(bar.from));
  const to = Math.max(scene.xOf(bar.to), from + 2);
  if (to < scene.left || from > scene.width) return;
  const kept = bar.bar.status === RESERVED;
  pen.globalAlpha = bar.bar === scene.over ? 1 : 0.8;
  pen.beginPath();
  pen.roundRect(from, bar.top + 1, to - from, Math.max(2, bar.px - 3), bar.px > 8 ? 3 : 1);
  if (kept) {
    // A reservation is an outline, not a bar.
    pen.strokeStyle = paints.soft;
    pen.setLineDash([4, 3]);
    pen.stroke();
    pen.setLineDash([]);
  } else {
    pen.fillStyle = paints[toneOf(bar.bar.status)];
    pen.fill();
  }
  pen.globalAlpha = 1;
  // A failed execution is also marked by its shape.
  if (toneOf(bar.bar.status) === "bad" && to - from > 8 && bar.px > 10) {
    pen.fillStyle = paints.card;
    pen.fillRect(to - 5, bar.top + 3, 2, bar.px - 7);
  }
  if (to - from > 60 && bar.px > 12) {
    pen.fillStyle = kept ? paints.ink : paints.card;
    pen.fillText(
      shortened(bar.bar.name, Math.floor((to - from) / 7)),
      from + 5,
      bar.top + bar.px / 2,
    );
  }
}

/** Drawn from the bottom of the row; failures at the bottom, with a notch for users who do not see red. */
function paintCell(
  pen: CanvasRenderingContext2D,
  scene: Scene,
  row: Row,
  cell: Cell,
  part: number,
  paints: Paints,
): void {
  const from = scene.xOf(cell.from);
  const wide = Math.max(1, scene.xOf(cell.to) - from - 1);
  const high = Math.max(2, (row.crowd - 3) * part);
  const floor = row.top + row.crowd - 2;
  pen.globalAlpha = cell === scene.over ? 1 : 0.8;
  pen.fillStyle = paints.good;
  pen.fillRect(from, floor - high, wide, high);
  if (cell.failed) {
    const bad = Math.max(2, (high * cell.failed) / cell.began);
    pen.fillStyle = paints.bad;
    pen.fillRect(from, floor - bad, wide, bad);
    pen.fillStyle = paints.card;
    if (wide > 6) pen.fillRect(from + wide / 2 - 1, floor - Math.min(bad, 3), 2, Math.min(bad, 3));
  }
  pen.globalAlpha = 1;
}

function paintAxis(pen: CanvasRenderingContext2D, scene: Scene, paints: Paints): void {
  const span = scene.end - scene.start;
  const steps = [5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800];
  const wanted = (span / 1000) * (90 / Math.max(90, scene.width - scene.left));
  const step = (steps.find((one) => one >= wanted) ?? 604_800) * 1000;
  pen.fillStyle = paints.soft;
  pen.strokeStyle = paints.line;
  pen.beginPath();
  for (let time = Math.ceil(scene.start / step) * step; time < scene.end; time += step) {
    const x = Math.round(scene.xOf(time)) + 0.5;
    pen.moveTo(x, AXIS_PX - 4);
    pen.lineTo(x, scene.height);
    const words = step >= 3_600_000 ? short(time) : clockTime(time);
    if (x + 3 + pen.measureText(words).width <= scene.width)
      pen.fillText(words, x + 3, AXIS_PX / 2);
  }
  pen.stroke();
}
