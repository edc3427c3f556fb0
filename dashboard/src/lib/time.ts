// Formats times and durations.

const UNITS: readonly [string, number][] = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
];

/** A duration given in seconds: two units at most, fractions of a second for short ones. */
export function length(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `-${length(-seconds)}`;
  if (seconds < 0.001) return seconds === 0 ? "0 s" : "<1 ms";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  const whole = Math.round(seconds);
  const at = UNITS.findIndex(([, size]) => whole >= size);
  const [unit, size] = UNITS[at] ?? ["s", 1];
  const first = Math.floor(whole / size);
  const next = UNITS[at + 1];
  const rest = next ? Math.floor((whole % size) / next[1]) : 0;
  return next && rest ? `${first} ${unit} ${rest} ${next[0]}` : `${first} ${unit}`;
}

export function ago(time: string | null | undefined, now = Date.now()): string {
  if (!time) return "–";
  const seconds = (now - Date.parse(time)) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const rounded = Math.abs(seconds) < 60 ? Math.round(Math.abs(seconds)) : Math.abs(seconds);
  const text = oneUnit(rounded);
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

/** A duration in one unit, for small spaces. */
export function rough(seconds: number | null | undefined): string {
  return typeof seconds === "number" && seconds >= 10 ? oneUnit(seconds) : length(seconds);
}

function oneUnit(seconds: number): string {
  const [unit, size] = UNITS.find(([, one]) => seconds >= one) ?? ["s", 1];
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** The duration between two times, or from one until now. */
export function between(
  start: string | null | undefined,
  end?: string | null,
  now = Date.now(),
): number | null {
  if (!start) return null;
  return Math.max(0, ((end ? Date.parse(end) : now) - Date.parse(start)) / 1000);
}

const exactly = new Intl.DateTimeFormat(undefined, {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const shortly = new Intl.DateTimeFormat(undefined, {
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
});
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

export const exact = (time: string | number): string => exactly.format(new Date(time));
export const short = (time: string | number): string => shortly.format(new Date(time));
export const clockTime = (time: string | number): string => clock.format(new Date(time));

/** The local date and time in a time zone. */
export function inZone(time: number, zone: string): { day: string; clock: string } {
  const parts = new Intl.DateTimeFormat("en-CA", {
    timeZone: zone,
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  }).formatToParts(new Date(time));
  const part = (type: string) => parts.find((one) => one.type === type)?.value ?? "";
  const seconds = part("second") === "00" ? "" : `:${part("second")}`;
  return {
    day: `${part("year")}-${part("month")}-${part("day")}`,
    clock: `${part("hour")}:${part("minute")}${seconds}`,
  };
}
