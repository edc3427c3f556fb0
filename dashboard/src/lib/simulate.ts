// A simulation as the page asks for it: kept in the address, sent to the API, drawn over time.

import type { ReplayView, SimulationSpec, SimulationView } from "../api/schema.gen";
import { type Act, rotaLine } from "./commands";
import { PRESET_NAMES } from "./policy";

export type ReplayName = ReplayView["policy"];

export const REPLAYS: readonly ReplayName[] = ["recorded", "current", ...PRESET_NAMES];
/** As many as one simulation compares. */
export const REPLAYS_MAX = 4;

export const REPLAY_WORDS: Partial<Record<ReplayName, string>> = {
  recorded: "as it was",
  current: "the policy in force",
};

export const SPANS: readonly [string, number][] = [
  ["1 h", 3_600_000],
  ["6 h", 6 * 3_600_000],
  ["24 h", 24 * 3_600_000],
  ["7 d", 7 * 24 * 3_600_000],
];

export interface Question {
  span: string;
  /** Local times as the browser's own field has them; they go before the span. */
  from: string;
  to: string;
  workers: string;
  policies: ReplayName[];
}

export function readQuestion(search: URLSearchParams): Question {
  const named = (search.get("policies") ?? "recorded,current,easy").split(",");
  const span = search.get("span") ?? "";
  return {
    span: SPANS.some(([name]) => name === span) ? span : "24 h",
    from: search.get("from") ?? "",
    to: search.get("to") ?? "",
    workers: search.get("workers") ?? "",
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
  // The command runs it on one's own machine: it knows presets, and takes the workers of now.
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

/** The middle of each slice, in seconds since 1970. */
export function sliceTimes(view: SimulationView): number[] {
  const slices = view.policies[0]?.waits.length ?? 0;
  const start = Date.parse(view.from) / 1000;
  return Array.from({ length: slices }, (_, at) => start + ((at + 0.5) / slices) * view.span);
}
