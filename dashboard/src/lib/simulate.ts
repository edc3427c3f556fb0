// Settings of a simulation: kept in the address, sent to the API; and the time axis of its charts.

import type { ReplayView, SimulationSpec, SimulationView } from "../api/schema.gen";
import { type Act, rotaLine } from "./commands";
import { PRESET_NAMES } from "./policy";

export type ReplayName = ReplayView["policy"];

export const REPLAYS: readonly ReplayName[] = ["recorded", "current", ...PRESET_NAMES];
/** Policies that one simulation compares. */
export const REPLAYS_MAX = 4;

export const REPLAY_WORDS: Partial<Record<ReplayName, string>> = {
  recorded: "recorded",
  current: "current policy",
};

export const SPANS: readonly [string, number][] = [
  ["1 h", 3_600_000],
  ["6 h", 6 * 3_600_000],
  ["24 h", 24 * 3_600_000],
  ["7 d", 7 * 24 * 3_600_000],
];

/** The machines that a trace runs on. */
export const MACHINES = {
  own: "those of the trace, else the current ones",
  pool: "one pool of processors",
  alike: "equal workers",
} as const;
export type Machines = keyof typeof MACHINES;

export interface Question {
  of: "past" | "trace";
  span: string;
  /** Local times of the browser's date field; they take precedence over the span. */
  from: string;
  to: string;
  workers: string;
  machines: Machines;
  cpus: string;
  cpu: string;
  memory: string;
  policies: ReplayName[];
}

export function readQuestion(search: URLSearchParams): Question {
  const named = (search.get("policies") ?? "recorded,current,easy").split(",");
  const span = search.get("span") ?? "";
  const machines = search.get("machines") ?? "";
  return {
    of: search.get("of") === "trace" ? "trace" : "past",
    span: SPANS.some(([name]) => name === span) ? span : "24 h",
    from: search.get("from") ?? "",
    to: search.get("to") ?? "",
    workers: search.get("workers") ?? "",
    machines: machines === "pool" || machines === "alike" ? machines : "own",
    cpus: search.get("cpus") ?? "",
    cpu: search.get("cpu") ?? "",
    memory: search.get("memory") ?? "",
    policies: REPLAYS.filter((name) => named.includes(name)).slice(0, REPLAYS_MAX),
  };
}

const utc = (local: string): string | null => {
  const time = Date.parse(local);
  return Number.isNaN(time) ? null : new Date(time).toISOString();
};

export function simulationAct(asked: Question, now: number): Act {
  const span = SPANS.find(([name]) => name === asked.span)?.[1] ?? 0;
  const from = utc(asked.from) ?? new Date(now - span).toISOString();
  const to = utc(asked.to);
  const body: SimulationSpec = {
    from,
    ...(to ? { to } : {}),
    ...(asked.workers ? { workers: Number(asked.workers) } : {}),
    policies: asked.policies,
  };
  // The command simulates on the user's machine: it knows presets, and uses the current workers.
  const names = asked.policies.filter((name) => name !== "current");
  const until = to ? ["--before", to] : [];
  return {
    call: "POST /simulations",
    asked: { body },
    rota: rotaLine(
      "history",
      "replay",
      "--after",
      from,
      ...until,
      "--policy",
      names.join(",") || "default",
    ),
  };
}

/** The option of `rota simulate` for the file's format; the server detects the format itself. */
function optionFor(name: string): string {
  const plain = name.replace(/\.gz$/, "");
  if (plain.endsWith(".jsonl")) return "--trace";
  return plain.endsWith(".json") ? "--dag" : "--swf";
}

export function traceAct(asked: Question, file: File): Act {
  const sizes: Record<Machines, Record<string, string>> = {
    own: {},
    pool: { cpus: asked.cpus },
    alike: { workers: asked.workers, cpu: asked.cpu, memory: asked.memory },
  };
  const machines = Object.entries(sizes[asked.machines]).filter(([, value]) => value);
  const names = asked.policies.filter((name) => name !== "current");
  return {
    call: "POST /simulations/trace",
    asked: {
      query: { name: file.name, ...Object.fromEntries(machines), policies: asked.policies },
      file,
    },
    rota: rotaLine(
      "simulate",
      optionFor(file.name),
      file.name,
      ...machines.flatMap(([name, value]) => [`--${name}`, value]),
      "--policy",
      names.join(",") || "default",
    ),
  };
}

/** The middle of each slice, in seconds since 1970, or since the first arrival if the date is
 * unknown. */
export function sliceTimes(view: SimulationView): number[] {
  const slices = view.policies[0]?.waits.length ?? 0;
  const start = view.from ? Date.parse(view.from) / 1000 : 0;
  return Array.from({ length: slices }, (_, at) => start + ((at + 0.5) / slices) * view.span);
}
