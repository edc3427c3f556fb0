// The statuses of jobs and executions: which are final, and how each is shown, never by colour alone.

import type { JobView } from "../api/schema.gen";
import { groupOf } from "./group";

export type Status = JobView["status"];

export const STATUSES: readonly Status[] = [
  "pending",
  "queued",
  "running",
  "cancelling",
  "succeeded",
  "failed",
  "cancelled",
  "skipped",
  "expired",
];
export const LIVE: readonly Status[] = ["pending", "queued", "running", "cancelling"];
export const RETRIABLE: readonly Status[] = ["failed", "cancelled", "skipped", "expired"];

export const isFinal = (status: string): boolean => !(LIVE as readonly string[]).includes(status);

/** Whether the job runs or has ended. A job that waits for its retry does neither. */
export const hasLength = (job: JobView): boolean =>
  job.started_at !== null &&
  (job.finished_at !== null ||
    !["pending", "queued"].includes(job.status) ||
    groupOf(job) !== null);

/** The reason shown beside a status, unless the status already says it. */
export const noteBeside = (status: string, note: string | null | undefined): string | null =>
  note && note !== status ? note : null;

export type Tone = "good" | "bad" | "busy" | "wait" | "off";

const TONES: Record<string, Tone> = {
  succeeded: "good",
  online: "good",
  active: "good",
  fired: "good",
  live: "good",
  up: "good",
  ok: "good",
  resolved: "good",
  taken: "good",
  failed: "bad",
  expired: "bad",
  lost: "bad",
  timed_out: "bad",
  unhealthy: "bad",
  silent: "bad",
  late: "bad",
  firing: "bad",
  given_up: "bad",
  running: "busy",
  claimed: "busy",
  leader: "busy",
  cancelling: "wait",
  pending: "wait",
  queued: "wait",
  draining: "wait",
  paused: "wait",
  held: "wait",
  waiting: "wait",
  preempted: "wait",
  caught_up: "wait",
};

export const toneOf = (status: string): Tone => TONES[status] ?? "off";

/** A shape for each tone, for users who do not see its colour. */
export const SHAPES: Record<Tone, string> = {
  good: "●",
  bad: "▲",
  busy: "◐",
  wait: "○",
  off: "–",
};
