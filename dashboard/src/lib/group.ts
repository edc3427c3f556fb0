// Job groups: arrays and gangs, their members, and the states of members.

import type { JobView } from "../api/schema.gen";
import type { Tone } from "./status";

export interface Share {
  state: "succeeded" | "running" | "queued" | "failed" | "cancelled";
  count: number;
  tone: Tone;
}

export interface JobGroup {
  kind: "array" | "gang";
  size: number;
  /** States in the order of the bar. */
  shares: Share[];
}

const TONES: Record<Share["state"], Tone> = {
  succeeded: "good",
  running: "busy",
  queued: "wait",
  failed: "bad",
  cancelled: "off",
};

/** The job group, if the job is an array or a gang. */
export function groupOf(job: JobView): JobGroup | null {
  const many = job.array ?? job.gang;
  if (!many) return null;
  const states = Object.keys(TONES) as Share["state"][];
  return {
    kind: job.array ? "array" : "gang",
    size: job.array ? job.array.count : (job.gang?.size ?? 0),
    shares: states.map((state) => ({ state, count: many[state] ?? 0, tone: TONES[state] })),
  };
}

export interface Membership {
  kind: "array" | "gang";
  id: string;
  index: number;
}

/** The job group that a job is a member of. */
export function memberOf(job: JobView): Membership | null {
  if (job.array_id) return { kind: "array", id: job.array_id, index: job.array_index ?? 0 };
  if (job.gang_id) return { kind: "gang", id: job.gang_id, index: job.gang_index ?? 0 };
  return null;
}

/** The text of the question before cancelling. */
export function cancelText(job: JobView): string {
  const group = groupOf(job);
  const stops = "SIGTERM, a grace period, then SIGKILL for the whole process tree.";
  if (group)
    return `All of the ${group.kind}: waiting members are cancelled, running ones are stopped.`;
  if (job.gang_id) return `This cancels all members of its gang. ${stops}`;
  if (job.status !== "running") return "It is cancelled before it starts.";
  return `Its worker stops it: ${stops}`;
}
