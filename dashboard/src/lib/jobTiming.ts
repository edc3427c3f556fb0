// The history of a job as periods: what it waited for, when it ran, how each execution ended.

import type { ExecutionView, JobView } from "../api/schema.gen";
import { groupOf } from "./group";
import { type Tone, toneOf } from "./status";

export interface Period {
  label: string;
  tone: Tone;
  from: number;
  to: number;
  /** Whether it has not ended. */
  open: boolean;
}

export function jobTiming(
  job: JobView,
  executions: readonly ExecutionView[],
  now: number,
): Period[] {
  if (groupOf(job) && job.started_at) return groupTiming(job, Date.parse(job.started_at), now);
  const tries = [...executions].sort((a, b) => Date.parse(a.claimed_at) - Date.parse(b.claimed_at));
  const ended = job.finished_at ? Date.parse(job.finished_at) : null;
  const created = Date.parse(job.created_at);
  const due = job.run_at ? Date.parse(job.run_at) : created;
  const found: Period[] = [];
  let at = created;
  const until = (to: number, label: string, tone: Tone, open = false) => {
    if (to > at || open) found.push({ label, tone, from: at, to: Math.max(to, at), open });
    at = Math.max(at, to);
  };
  const first = tries[0] ? Date.parse(tries[0].claimed_at) : (ended ?? now);
  if (due > created) {
    const waits = Math.min(due, first);
    until(waits, "waited for its time", "off", due > now && !ended && !tries.length);
  }
  for (const [number, one] of tries.entries()) {
    const claimed = Date.parse(one.claimed_at);
    until(claimed, number === 0 ? waitText(job) : "waited to retry", "wait");
    const started = one.start_time ? Date.parse(one.start_time) : null;
    if (started !== null) until(started, "sent to the worker", "off");
    const end = one.end_time ? Date.parse(one.end_time) : null;
    until(
      end ?? now,
      `attempt ${one.attempt}: ${one.status.replaceAll("_", " ")}`,
      toneOfExecution(one),
      !end,
    );
  }
  if (ended === null && !tries.some((one) => !one.end_time)) {
    if (now > at) until(now, tries.length ? "waits to retry" : waitText(job), "wait", true);
  } else if (ended !== null && ended > at + 1) until(ended, waitText(job), "wait");
  return found;
}

/** A job group waits until its first member starts, and runs until the last has ended. */
function groupTiming(job: JobView, started: number, now: number): Period[] {
  const created = Date.parse(job.created_at);
  const end = job.finished_at ? Date.parse(job.finished_at) : null;
  const ran: Period = {
    label: "its members ran",
    tone: end === null ? "busy" : toneOf(job.status),
    from: started,
    to: end ?? Math.max(now, started),
    open: end === null,
  };
  if (started <= created) return [ran];
  const waited = { label: waitText(job), tone: "wait", from: created, to: started } as const;
  return [{ ...waited, open: false }, ran];
}

function waitText(job: JobView): string {
  return job.dependencies.length && job.status === "pending"
    ? "waits for other jobs"
    : "waited for a worker";
}

function toneOfExecution(one: ExecutionView): Tone {
  if (one.status === "succeeded") return "good";
  if (one.status === "running" || one.status === "claimed") return "busy";
  return one.status === "cancelled" || one.status === "preempted" ? "off" : "bad";
}
