// Dependency graph on a canvas, for thousands of jobs: zoom, pan, click; and as a list.

import { type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import type { GraphView as Graph } from "../api/schema.gen";
import { type Camera, fitted, moved, zoom } from "../lib/camera";
import { count, plural } from "../lib/format";
import { layers } from "../lib/layers";
import { go, pageOf } from "../lib/router";
import { SHAPES, toneOf } from "../lib/status";
import { colours } from "../lib/theme";
import { Link, Status } from "./basics";

const STEP = { x: 210, y: 40 };
const SIZE = { width: 168, height: 28 };
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
  "accent",
] as const;
const LISTED = 200;

interface Placed {
  job_id: string;
  name: string;
  status: string;
  x: number;
  y: number;
}

export function GraphView(props: { graph: Graph; current: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [camera, setCamera] = useState<Camera | null>(null);
  const [over, setOver] = useState<Placed | null>(null);
  const drag = useRef<{ x: number; y: number; far: boolean } | null>(null);
  const shape = useMemo(() => placed(props.graph), [props.graph]);
  const known = useRef(0);

  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const sized = new ResizeObserver(() => {
      const view = { width: element.clientWidth, height: element.clientHeight };
      // A graph that grew is fitted again; one with changed states only is not moved.
      if (known.current !== shape.nodes.length || view.width) {
        known.current = shape.nodes.length;
        setCamera((old) => old ?? fitted(shape.world, view));
      }
    });
    sized.observe(element);
    return () => sized.disconnect();
  }, [shape]);

  useEffect(() => {
    const element = canvas.current;
    if (!element || !camera) return;
    const frame = requestAnimationFrame(() => paint(element, shape, camera, props.current, over));
    return () => cancelAnimationFrame(frame);
  }, [shape, camera, over, props.current]);

  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    // React's own wheel events cannot be kept from scrolling the page.
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      const at = { x: event.offsetX, y: event.offsetY };
      setCamera((old) => old && zoom(old, Math.exp(-event.deltaY / 300), at));
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);

  const find = (event: PointerEvent<HTMLCanvasElement>): Placed | null => {
    if (!camera) return null;
    const box = event.currentTarget.getBoundingClientRect();
    const x = (event.clientX - box.left) / camera.scale + camera.x;
    const y = (event.clientY - box.top) / camera.scale + camera.y;
    return shape.at(x, y);
  };
  const pointerMoved = (event: PointerEvent<HTMLCanvasElement>) => {
    const from = drag.current;
    if (!from) {
      setOver(find(event));
      return;
    }
    const dx = event.clientX - from.x;
    const dy = event.clientY - from.y;
    drag.current = { x: event.clientX, y: event.clientY, far: from.far || Math.hypot(dx, dy) > 2 };
    setCamera((old) => old && moved(old, dx, dy));
  };
  const pointerUp = (event: PointerEvent<HTMLCanvasElement>) => {
    const clicked = drag.current && !drag.current.far ? find(event) : null;
    drag.current = null;
    if (clicked) go(pageOf.job(clicked.job_id));
  };
  const nearer = (factor: number) => {
    const element = canvas.current;
    if (!element) return;
    const middle = { x: element.clientWidth / 2, y: element.clientHeight / 2 };
    setCamera((old) => old && zoom(old, factor, middle));
  };
  const whole = () => {
    const element = canvas.current;
    if (element)
      setCamera(fitted(shape.world, { width: element.clientWidth, height: element.clientHeight }));
  };
  return (
    <div className="graph">
      <div className="graph-bar">
        <span>
          {plural(shape.nodes.length, "job")},{" "}
          {plural(props.graph.edges.length, "dependency", "dependencies")}
          {props.graph.truncated ? " (the nearest; there are more)" : ""}
        </span>
        <span className="spring" />
        <span className="soft small">drag to move, Ctrl + wheel to zoom</span>
        <button type="button" className="small" aria-label="Zoom in" onClick={() => nearer(1.4)}>
          +
        </button>
        <button
          type="button"
          className="small"
          aria-label="Zoom out"
          onClick={() => nearer(1 / 1.4)}
        >
          −
        </button>
        <button type="button" className="small" onClick={whole}>
          Fit
        </button>
      </div>
      <canvas
        ref={canvas}
        className={over ? "graph-canvas pointing" : "graph-canvas"}
        data-nodes={shape.nodes.length}
        role="img"
        aria-label={`Dependency graph of ${count(shape.nodes.length)} jobs; the same as a list below`}
        onPointerDown={(event) => {
          drag.current = { x: event.clientX, y: event.clientY, far: false };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={pointerMoved}
        onPointerUp={pointerUp}
        onPointerLeave={() => setOver(null)}
      />
      <p className="graph-over small">
        {over ? (
          <>
            <Status of={over.status} /> {over.name}
          </>
        ) : (
          " "
        )}
      </p>
      <details>
        <summary>As a list</summary>
        <ul className="plain-list">
          {shape.nodes.slice(0, LISTED).map((node) => (
            <li key={node.job_id}>
              <Status of={node.status} /> <Link to={pageOf.job(node.job_id)}>{node.name}</Link>
            </li>
          ))}
        </ul>
        {shape.nodes.length > LISTED ? (
          <p className="soft">and {count(shape.nodes.length - LISTED)} more</p>
        ) : null}
      </details>
    </div>
  );
}

interface Shape {
  nodes: Placed[];
  edges: readonly { from: Placed; to: Placed }[];
  world: { width: number; height: number };
  at: (x: number, y: number) => Placed | null;
}

function placed(graph: Graph): Shape {
  const spots = layers(
    graph.nodes.map((node) => ({ id: node.job_id })),
    graph.edges,
  );
  const grid = new Map<string, Placed>();
  const byId = new Map<string, Placed>();
  let width = 0;
  let height = 0;
  for (const node of graph.nodes) {
    const spot = spots.get(node.job_id) ?? { x: 0, y: 0 };
    const one = { ...node, x: spot.x * STEP.x, y: spot.y * STEP.y };
    byId.set(node.job_id, one);
    grid.set(`${spot.x}/${Math.floor(spot.y)}`, one);
    width = Math.max(width, one.x + SIZE.width);
    height = Math.max(height, one.y + SIZE.height);
  }
  const edges = graph.edges.flatMap((edge) => {
    const from = byId.get(edge.from);
    const to = byId.get(edge.to);
    return from && to ? [{ from, to }] : [];
  });
  const at = (x: number, y: number): Placed | null => {
    const column = Math.floor(x / STEP.x);
    for (const row of [Math.floor(y / STEP.y), Math.floor(y / STEP.y - 0.5)]) {
      const one = grid.get(`${column}/${row}`);
      if (one && x >= one.x && x <= one.x + SIZE.width && y >= one.y && y <= one.y + SIZE.height)
        return one;
    }
    return null;
  };
  return { nodes: [...byId.values()], edges, world: { width, height }, at };
}

function paint(
  element: HTMLCanvasElement,
  shape: Shape,
  camera: Camera,
  current: string,
  over: Placed | null,
): void {
  const ratio = devicePixelRatio || 1;
  const width = element.clientWidth;
  const height = element.clientHeight;
  element.width = width * ratio;
  element.height = height * ratio;
  const pen = element.getContext("2d");
  if (!pen) return;
  const paints = colours(element.parentElement ?? element, NAMES);
  pen.scale(ratio * camera.scale, ratio * camera.scale);
  pen.translate(-camera.x, -camera.y);
  const sees = (x: number, y: number) =>
    x + SIZE.width >= camera.x &&
    x <= camera.x + width / camera.scale &&
    y + SIZE.height >= camera.y &&
    y <= camera.y + height / camera.scale;
  pen.lineWidth = Math.max(1, 0.7 / camera.scale);
  // Edges between the strength of borders and of text: visible, but behind the jobs.
  pen.strokeStyle = paints.soft;
  pen.globalAlpha = 0.6;
  pen.beginPath();
  for (const { from, to } of shape.edges) {
    if (!sees(from.x, from.y) && !sees(to.x, to.y) && shape.edges.length > 5_000) continue;
    const startX = from.x + SIZE.width;
    const startY = from.y + SIZE.height / 2;
    const endY = to.y + SIZE.height / 2;
    const bend = Math.max(20, (to.x - startX) / 2);
    pen.moveTo(startX, startY);
    pen.bezierCurveTo(startX + bend, startY, to.x - bend, endY, to.x, endY);
  }
  pen.stroke();
  pen.globalAlpha = 1;
  const readable = camera.scale > 0.45;
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (const node of shape.nodes) {
    if (!sees(node.x, node.y)) continue;
    const colour = paints[toneOf(node.status)];
    if (!readable) {
      pen.fillStyle = node.job_id === current ? paints.accent : colour;
      pen.fillRect(node.x, node.y, SIZE.width, SIZE.height);
      continue;
    }
    pen.fillStyle = paints.card;
    pen.strokeStyle = node.job_id === current || node === over ? paints.accent : colour;
    pen.lineWidth = node.job_id === current ? 2.5 : 1.2;
    pen.beginPath();
    pen.roundRect(node.x, node.y, SIZE.width, SIZE.height, 6);
    pen.fill();
    pen.stroke();
    pen.fillStyle = colour;
    pen.fillText(SHAPES[toneOf(node.status)], node.x + 9, node.y + SIZE.height / 2);
    pen.fillStyle = paints.ink;
    pen.fillText(shortened(node.name, 20), node.x + 25, node.y + SIZE.height / 2);
  }
}

export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
