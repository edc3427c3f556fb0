// Numbers, sizes, ids and JSON, as people read them.

import type { Json } from "../api/schema.gen";

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value: number): string => plain.format(value);
export const brief = (value: number): string =>
  value < 10_000 ? plain.format(value) : compact.format(value);

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
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

/** The end of an id: its beginning is the time, which jobs of one batch share. */
export const shortId = (id: string): string => (id.length > 13 ? id.slice(-12) : id);

export const pretty = (value: Json | undefined): string => JSON.stringify(value ?? null, null, 2);

export function isEmpty(value: Json | undefined): boolean {
  if (value === null || value === undefined || value === "") return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

/** One line that says what went wrong, whatever shape the error has. */
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
    case "bundle":
    case "container":
      return Array.isArray(task.argv) ? task.argv.map((word) => quote(String(word))).join(" ") : "";
    case "python":
      return String(task.entry ?? "");
    case "http":
      return `${String(task.method ?? "POST")} ${String(task.url ?? "")}`;
    default:
      return String(task.kind ?? "");
  }
}

/** As a shell reads it. */
export function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
