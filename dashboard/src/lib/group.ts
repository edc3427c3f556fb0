// Arrays and gangs: one submission that stands for many jobs, and what each of those is to it.

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
  /** In the order in which a bar shows them. */
  shares: Share[];
}

const TONES: Record<Share["state"], Tone> = {
  succeeded: "good",
  running: "busy",
  queued: "wait",
  failed: "bad",
  cancelled: "off",
};

/** What a job stands for, if it stands for many. */
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

/** Of what a job is a member, if it is one. */
export function memberOf(job: JobView): Membership | null {
  if (job.array_id) return { kind: "array", id: job.array_id, index: job.array_index ?? 0 };
  if (job.gang_id) return { kind: "gang", id: job.gang_id, index: job.gang_index ?? 0 };
  return null;
}

/** What cancelling comes to, in the words of a question. */
export function cancelText(job: JobView): string {
  const group = groupOf(job);
  const stops = "SIGTERM, some grace, then SIGKILL for the whole process tree.";
  if (group)
    return `All of the ${group.kind}: waiting members are cancelled, running ones are stopped.`;
  if (job.gang_id)
    return `Its gang is cancelled with it: what happens to one happens to all. ${stops}`;
  if (job.status !== "running") return "It is cancelled before it starts.";
  return `Its worker stops it: ${stops}`;
}
