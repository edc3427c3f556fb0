// Formats numbers, sizes, ids and JSON.

import type { Json } from "../api/schema.gen";

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value: number): string => plain.format(value);
export const brief = (value: number): string =>
  value < 10_000 ? plain.format(value) : compact.format(value);

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A percentage; small values are not rounded to zero. */
export function percent(part: number): string {
  const value = part * 100;
  return `${value && value < 1 ? "<1" : Math.round(value)} %`;
}

/** A rate for each second; small rates for each minute or hour, so that they are not zero. */
export function rateWords(perSecond: number | null): string {
  if (perSecond === null) return "–";
  if (perSecond === 0) return "0";
  if (perSecond >= 10) return brief(perSecond);
  return perSecond >= 0.1 ? perSecond.toFixed(1) : `${(perSecond * 60).toFixed(1)} a min`;
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number): string {
  let at = 0;
  let left = value;
  while (left >= 1024 && at < SIZES.length - 1) {
    left /= 1024;
    at += 1;
  }
  return `${Number(left.toFixed(left < 10 ? 1 : 0))} ${SIZES[at]}`;
}

const IN_BYTES = ["memory", "storage"];

export function amount(kind: string, value: number): string {
  return IN_BYTES.includes(kind) ? bytes(value) : String(Number(value.toFixed(2)));
}

/** The end of an id: jobs of one batch have the same beginning, the time. */
export const shortId = (id: string): string => (id.length > 13 ? id.slice(-12) : id);

export const pretty = (value: Json | undefined): string => JSON.stringify(value ?? null, null, 2);

export function isEmpty(value: Json | undefined): boolean {
  if (value === null || value === undefined || value === "") return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

/** An error of any shape as one line. */
export function errorLine(error: Json): string {
  if (error === null) return "";
  if (typeof error !== "object") return String(error);
  if (Array.isArray(error)) return JSON.stringify(error);
  const words = [error.type, error.message].filter((word) => typeof word === "string" && word);
  return words.join(": ") || JSON.stringify(error);
}

/** A job's task in one line. */
export function taskLine(task: Json): string {
  if (task === null || typeof task !== "object" || Array.isArray(task)) return "function";
  switch (task.kind) {
    case "command":
      return words(task.argv);
    case "bundle":
      return words(task.argv) || `bundle ${String(task.bundle_id ?? "")}`;
    case "container":
      return `${String(task.image ?? "")} ${words(task.argv)}`.trim();
    case "python":
      return String(task.entry ?? "");
    case "http":
      return `${String(task.method ?? "POST")} ${String(task.url ?? "")}`;
    default:
      return String(task.kind ?? "");
  }
}

function words(argv: Json | undefined): string {
  return Array.isArray(argv) ? argv.map((word) => quote(String(word))).join(" ") : "";
}

/** The bundles that a task uses, and their purpose. */
export function bundlesOf(task: Json): { use: string; id: string }[] {
  if (task === null || typeof task !== "object" || Array.isArray(task)) return [];
  const found: { use: string; id: string }[] = [];
  if (typeof task.bundle_id === "string") found.push({ use: "program", id: task.bundle_id });
  const inputs = task.inputs;
  if (inputs !== null && typeof inputs === "object" && !Array.isArray(inputs))
    for (const [name, id] of Object.entries(inputs))
      found.push({ use: `input ${name}`, id: String(id) });
  return found;
}

/** A size for the API, exact to the byte, in the largest unit that divides it. */
export function sizeWord(value: number): string {
  let at = 0;
  let left = value;
  while (left && left % 1024 === 0 && at < SIZES.length - 1) {
    left /= 1024;
    at += 1;
  }
  return at ? `${left}${SIZES[at]}` : String(left);
}

/** Quotes a word for a shell. */
export function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
