// Line chart over time, drawn by uPlot in the colours of the theme; the values are also text.

import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { colours } from "../lib/theme";
import { clockTime, length, short } from "../lib/time";

export interface Series {
  label: string;
  colour: "good" | "bad" | "busy" | "wait" | "off" | "accent";
  values: readonly (number | null)[];
  fill?: boolean;
  dash?: boolean;
  /** Draws the line across missing values. */
  bridge?: boolean;
  /** Shown beside the label instead of the last value. */
  note?: string;
}

/** Steps of the axis for times without a date. */
const STEPS = [
  1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600,
  2_592_000, 5_184_000, 15_552_000, 31_536_000,
];
const NAMES = ["good", "bad", "busy", "wait", "off", "accent", "soft", "line"] as const;

export function Chart(props: {
  label: string;
  /** Seconds since 1970, ascending. */
  times: readonly number[];
  series: readonly Series[];
  format: (value: number) => string;
  height?: number;
  /** Times are seconds since a start with an unknown date. */
  elapsed?: boolean;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const height = props.height ?? 150;
  const shape = props.series.map((one) => one.label).join("|");

  // biome-ignore lint/correctness/useExhaustiveDependencies: redrawn only when the series change
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const draw = () => {
      plot.current?.destroy();
      const made = new uPlot(
        optionsOf(latest.current, element, height),
        dataOf(latest.current),
        element,
      );
      plot.current = made;
    };
    draw();
    const sized = new ResizeObserver(() =>
      plot.current?.setSize({ width: Math.max(120, element.clientWidth), height }),
    );
    sized.observe(element);
    const themed = new MutationObserver(draw);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", draw);
    return () => {
      sized.disconnect();
      themed.disconnect();
      system.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, height]);

  useEffect(() => {
    plot.current?.setData(dataOf(props));
  }, [props]);

  const last = props.series.map((one) => {
    if (one.note) return `${one.label} ${one.note}`;
    const value = one.values.findLast((each) => each !== null);
    return `${one.label} ${value === undefined || value === null ? "none" : props.format(value)}`;
  });
  return (
    <div>
      <div
        ref={box}
        className="chart"
        role="img"
        aria-label={`${props.label}: ${last.join(", ")}`}
      />
      <div className="legend" aria-hidden="true">
        {props.series.map((one, at) => (
          <span key={one.label}>
            <i className={`key tone-${one.colour} ${one.dash ? "dash" : ""}`} />
            {last[at]}
          </span>
        ))}
      </div>
    </div>
  );
}

const lengthOf = (words: string): number => words.length;

function dataOf(props: { times: readonly number[]; series: readonly Series[] }): uPlot.AlignedData {
  return [
    [...props.times],
    ...props.series.map((one) => [...one.values]),
  ] as unknown as uPlot.AlignedData;
}

function optionsOf(
  props: {
    series: readonly Series[];
    format: (value: number) => string;
    times: readonly number[];
    elapsed?: boolean;
  },
  element: HTMLElement,
  height: number,
): uPlot.Options {
  const paint = colours(element, NAMES);
  const axis = {
    stroke: paint.soft,
    font: "11px system-ui, sans-serif",
    grid: { stroke: paint.line, width: 1 },
    ticks: { show: false },
  };
  const long = (props.times.at(-1) ?? 0) - (props.times[0] ?? 0) > 86_400;
  const words = props.elapsed
    ? (tick: number) => length(tick)
    : (tick: number) => (long ? short : clockTime)(tick * 1000);
  return {
    width: Math.max(120, element.clientWidth),
    height,
    legend: { show: false },
    // Half of the last label extends beyond the right end.
    padding: [8, 26, 0, 0],
    cursor: { points: { size: 6 }, y: false },
    scales: {
      x: { time: !props.elapsed },
      y: { range: (_, low, high) => [Math.min(0, low), Math.max(1e-3, high) * 1.1] },
    },
    axes: [
      {
        ...axis,
        size: 28,
        space: 80,
        ...(props.elapsed ? { incrs: STEPS } : {}),
        values: (_, ticks) => ticks.map(words),
      },
      {
        ...axis,
        // As wide as its longest label.
        size: (_, ticks) => Math.max(52, 14 + 6 * Math.max(0, ...(ticks ?? []).map(lengthOf))),
        space: 32,
        values: (_, ticks) => ticks.map((tick) => props.format(tick)),
      },
    ],
    series: [
      {},
      ...props.series.map((one) => ({
        label: one.label,
        stroke: paint[one.colour],
        width: 1.6,
        points: { show: false },
        spanGaps: one.bridge ?? false,
        ...(one.fill
          ? { fill: paint[one.colour].replace("rgb(", "rgba(").replace(")", ", 0.13)") }
          : {}),
        ...(one.dash ? { dash: [5, 4] } : {}),
      })),
    ],
  };
}
