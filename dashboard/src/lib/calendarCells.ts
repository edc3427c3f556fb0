// Groups instants into the cells of a strip: by day, or by hour or minute if a day has too many.

import { inZone } from "./time";

export interface Mark {
  at: number;
  label: string;
  tone: string;
  shape: string;
}

export interface Cell {
  key: string;
  head: string;
  marks: Mark[];
  isNow: boolean;
  /** The first cell that has not passed. */
  isNext: boolean;
}

/** Marks shown in one cell; further ones are counted. */
export const SHOWN_PER_CELL = 6;

type Unit = "day" | "hour" | "minute";
const CLOCK_CHARS: Record<Unit, number> = { day: 0, hour: 2, minute: 5 };

export function cellsOf(marks: readonly Mark[], zone: string, now: number): Cell[] {
  const sorted = [...marks].sort((one, other) => one.at - other.at);
  const cells = (["day", "hour"] as const)
    .map((unit) => grouped(sorted, zone, unit))
    .find((each) => [...each.values()].every((group) => group.length <= SHOWN_PER_CELL));
  const unit: Unit = cells ? unitOf(cells) : "minute";
  const found = cells ?? grouped(sorted, zone, unit);
  const here = keyOf(now, zone, unit);
  let passed = false;
  return [...found.entries()].map(([key, group]) => {
    const isNext = !passed && (group.at(-1)?.at ?? 0) >= now;
    passed ||= isNext;
    return { key, head: headOf(key), marks: group, isNow: key === here, isNext };
  });
}

function grouped(marks: readonly Mark[], zone: string, unit: Unit): Map<string, Mark[]> {
  const found = new Map<string, Mark[]>();
  for (const mark of marks) {
    const key = keyOf(mark.at, zone, unit);
    const group = found.get(key);
    if (group) group.push(mark);
    else found.set(key, [mark]);
  }
  return found;
}

function unitOf(cells: ReadonlyMap<string, unknown>): Unit {
  const [first = ""] = cells.keys();
  return first.includes(" ") ? "hour" : "day";
}

function keyOf(at: number, zone: string, unit: Unit): string {
  const { day, clock } = inZone(at, zone);
  return `${day} ${clock.slice(0, CLOCK_CHARS[unit])}`.trim();
}

function headOf(key: string): string {
  const [day = "", clock] = key.split(" ");
  const words = new Date(`${day}T12:00:00Z`).toLocaleDateString(undefined, {
    ...(clock ? {} : { weekday: "short" }),
    day: "numeric",
    month: "short",
    timeZone: "UTC",
  });
  if (!clock) return words;
  return `${words}, ${clock.includes(":") ? clock : `${clock}:00`}`;
}
