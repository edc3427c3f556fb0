// Describes why a job waits: its estimated start, its position in the queue, its history.

import type { DeadlineView, EstimateView, PhaseView, PositionView } from "../api/schema.gen";
import { count, plural, shortId } from "./format";
import type { Tone } from "./status";
import { ago, exact, length } from "./time";

const METHODS: Record<string, string> = {
  known_times: "the times it waits for are known",
  reservation: "capacity is reserved for it",
  forward_run: "a forecast of the scheduler",
  fluid: "estimated from the jobs before it",
};

export interface StartWords {
  when: string;
  /** The interval that contains four of five such starts. */
  likely: string | null;
  /** The method, and the accuracy of such estimates. */
  how: string | null;
}

export function startWords(estimate: EstimateView, now: number): StartWords {
  const { at, low, high, method } = estimate;
  const only = (when: string): StartWords => ({ when, likely: null, how: null });
  if (method === "never") return only("Never, unless something changes.");
  if (!at) return only(unknownWords(method));
  if (Date.parse(at) <= now) return only("As soon as a worker with free capacity asks for work.");
  const spans = low && high && low !== high;
  return {
    when: `At about ${exact(at)}, ${ago(at, now)}`,
    likely: spans ? `likely ${soon(low, now)} to ${soon(high, now)}` : null,
    how: howWords(estimate),
  };
}

/** `unknown`, or `unknown: ` and the reason. */
function unknownWords(method: string): string {
  const [, reason] = method.split(/:\s*/, 2);
  return reason ? `Start time unknown: ${reason}.` : "Start time unknown.";
}

const soon = (time: string, now: number): string =>
  Date.parse(time) <= now ? "from now" : ago(time, now);

function howWords(estimate: EstimateView): string {
  const how = METHODS[estimate.method] ?? estimate.method.replaceAll("_", " ");
  const past = estimate.accuracy;
  if (!past) return `${how}; no estimate has been checked yet`;
  const inside = Math.round(past.inside * 100);
  return `${how}; of ${plural(past.starts, "start")} forecast, ${inside} % fell inside`;
}

/** The estimated start and its interval as fractions of the time from now to the last of them. */
export function startSpan(
  estimate: EstimateView,
  now: number,
): { low: number; at: number; high: number } | null {
  const { at, low, high } = estimate;
  if (!at || !low || !high) return null;
  const end = Math.max(Date.parse(high), Date.parse(at));
  if (end <= now) return null;
  const part = (time: string) => Math.min(1, Math.max(0, (Date.parse(time) - now) / (end - now)));
  return { low: part(low), at: part(at), high: part(high) };
}

export function placeWords(position: PositionView): string {
  const about = position.exact ? "" : "about ";
  const parts = [
    `${about}${count(position.ahead)} ahead of it, of ${plural(position.waiting, "similar job", "similar jobs")}`,
  ];
  if (typeof position.starts_before === "number")
    parts.push(`${plural(position.starts_before, "job")} of any kind before it`);
  if (position.tenants_ahead)
    parts.push(`${plural(position.tenants_ahead, "tenant")} ahead of its own`);
  return parts.join("; ");
}

export function spellWords(spell: PhaseView): string {
  const lasts = spell.until === null ? " so far" : "";
  const where = spell.worker_id ? ` on ${shortId(spell.worker_id)}` : "";
  const reason = spell.reason ? ` (${spell.reason.replaceAll("_", " ")})` : "";
  return `${spell.what} ${length(spell.seconds)}${lasts}${where}${reason}`;
}

/** The history in order; causes seen during the current wait are parts of it. */
export function historyWords(spells: readonly PhaseView[]): string {
  const lasting = spells.findIndex((one) => one.until === null);
  const own = lasting < 0 ? spells : spells.slice(0, lasting + 1);
  const seen = lasting < 0 ? [] : spells.slice(lasting + 1);
  const said = own.map(spellWords).join("; ");
  if (!seen.length) return said;
  const parts = seen.map(
    (one) => `${(one.reason ?? one.what).replaceAll("_", " ")} ${length(one.seconds)}`,
  );
  return `${said}; of that ${parts.join(", ")}`;
}

const FIGURES: Record<string, string> = {
  failing: "workers without it",
  nearest: "nearest worker",
  nearest_lacks: "missing on the nearest",
  workers: "workers in total",
};

/** The label of a cause's figure. */
export const figureWords = (name: string): string => FIGURES[name] ?? name.replaceAll("_", " ");

const VERDICTS: Record<DeadlineView["verdict"], { words: string; tone: Tone }> = {
  on_time: { words: "on time", tone: "good" },
  at_risk: { words: "at risk", tone: "wait" },
  late: { words: "late", tone: "bad" },
  met: { words: "met", tone: "good" },
  missed: { words: "missed", tone: "bad" },
};

export function deadlineWords(deadline: DeadlineView): {
  verdict: string;
  slack: string;
  tone: Tone;
} {
  const { words, tone } = VERDICTS[deadline.verdict];
  const left = length(Math.abs(deadline.slack));
  return {
    verdict: words,
    slack: deadline.slack >= 0 ? `${left} to spare` : `${left} too late`,
    tone,
  };
}

/** Whether the remedy alone is enough; the server tried it on a copy, or did not. */
export function enoughWords(enough: boolean | null): string {
  if (enough === null) return "it was not tried whether this is enough";
  return enough ? "then it starts at once" : "not enough by itself";
}

export interface Piece {
  text: string;
  /** The page of an id in the text. */
  names?: "job" | "worker";
}

const IDS = /\b(worker |job )?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b/g;

/** Splits a sentence at its ids, so that each becomes a link. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let end = 0;
  for (const one of text.matchAll(IDS)) {
    const [whole, lead = "", id = ""] = one;
    const begin = one.index + lead.length;
    if (begin > end) found.push({ text: text.slice(end, begin) });
    found.push({ text: id, names: lead === "worker " ? "worker" : "job" });
    end = one.index + whole.length;
  }
  if (end < text.length) found.push({ text: text.slice(end) });
  return found;
}
