// Buckets of a busy timeline: how many executions started on each worker in each interval, where bars would not fit.

import type { TimelineBucketsView } from "../api/schema.gen";
import { count, percent } from "./format";
import { clockTime, length, short } from "./time";

export interface Cell {
  worker_id: string;
  from: number;
  to: number;
  began: number;
  failed: number;
}

/** For each worker the intervals in which executions started. */
export function cellsOf(
  crowd: TimelineBucketsView,
  start: number,
  end: number,
): Map<string, Cell[]> {
  const step = crowd.step * 1000;
  const found = new Map<string, Cell[]>();
  for (const lane of crowd.lanes) {
    const cells = lane.began.map((began, at) => ({
      worker_id: lane.worker_id,
      from: start + at * step,
      to: Math.min(end, start + (at + 1) * step),
      began,
      failed: lane.failed[at] ?? 0,
    }));
    found.set(
      lane.worker_id,
      cells.filter((cell) => cell.began > 0),
    );
  }
  return found;
}

/** The height of a bucket as a fraction; small counts stay visible. */
export function heightOf(cell: Cell, most: number): number {
  return most > 0 ? Math.max(0.12, Math.sqrt(cell.began / most)) : 0;
}

export function cellText(cell: Cell, estimated: boolean): string {
  const time = cell.to - cell.from >= 3_600_000 ? short : clockTime;
  const about = estimated ? "about " : "";
  const failed = cell.failed ? `, ${percent(cell.failed / cell.began)} failed` : "";
  return `${about}${count(cell.began)} started from ${time(cell.from)} to ${time(cell.to)}${failed}`;
}

/** Explains what the timeline shows. */
export function bucketSummary(crowd: TimelineBucketsView, drawn: number, running: number): string {
  const about = crowd.estimated ? "about " : "";
  const counted = `${about}${count(crowd.total)} executions started in this time, counted in steps of ${length(crowd.step)}. Higher means more; red is the part that failed.`;
  const bars =
    running > drawn
      ? `Bars are ${count(drawn)} of the ${count(running)} running executions.`
      : drawn
        ? "Bars are running executions."
        : "";
  const sampled = crowd.estimated
    ? "Large counts are estimated from samples; zoom in for exact ones."
    : "";
  return [counted, sampled, bars].filter(Boolean).join(" ").replace(/^a/, "A");
}
