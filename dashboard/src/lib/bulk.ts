// Bulk actions: one action on many jobs, in steps, so that it shows its progress and can be stopped.

import { call } from "../api/client";
import type { BulkSpec, JobFilter } from "../api/schema.gen";

export type BulkAction = BulkSpec["action"];

const PIECE = 200;
/** Up to so many jobs are named one by one, so that the action can be undone. */
export const NAMED_MAX = 2_000;
const COUNTED_MAX = 10_000;

export interface Progress {
  done: number;
  refused: number;
  /** Reasons for refusals, with the number of jobs. */
  reasons: Record<string, number>;
  total: number;
  /** Whether there are more than were counted. */
  atLeast: boolean;
}

export async function preview(
  action: BulkAction,
  filter: JobFilter,
  priority?: number,
): Promise<Progress> {
  const answer = await call("POST /jobs/bulk", {
    body: {
      action,
      filter,
      dry_run: true,
      limit: COUNTED_MAX,
      ...(priority === undefined ? {} : { priority }),
    },
  });
  return {
    done: 0,
    refused: answer.refused ?? 0,
    reasons: answer.reasons ?? {},
    total: answer.count,
    atLeast: answer.more ?? false,
  };
}

export async function runBulk(
  action: BulkAction,
  filter: JobFilter,
  options: {
    priority?: number | undefined;
    total: number;
    notify: (progress: Progress) => void;
    stopped: () => boolean;
  },
): Promise<Progress> {
  const progress: Progress = {
    done: 0,
    refused: 0,
    reasons: {},
    total: options.total,
    atLeast: false,
  };
  const act = async (part: JobFilter) => {
    const body = {
      action,
      filter: part,
      ...(part.job_ids ? {} : { limit: PIECE }),
      ...(options.priority === undefined ? {} : { priority: options.priority }),
    };
    const answer = await call("POST /jobs/bulk", { body });
    progress.done += answer.count;
    // Named jobs are sent once each. A filter matches refused jobs again in every step.
    progress.refused = (part.job_ids ? progress.refused : 0) + (answer.refused ?? 0);
    progress.reasons = part.job_ids
      ? added(progress.reasons, answer.reasons ?? {})
      : (answer.reasons ?? {});
    options.notify({ ...progress });
    return answer;
  };
  if (filter.job_ids) {
    for (let at = 0; at < filter.job_ids.length && !options.stopped(); at += PIECE)
      await act({ job_ids: filter.job_ids.slice(at, at + PIECE) });
    return progress;
  }
  while (!options.stopped()) {
    const answer = await act(filter);
    // Only refused jobs are left: nothing more can be done.
    if (!answer.more || answer.count === 0) break;
  }
  return progress;
}

/** Merges two lists of reasons. */
export function added(
  one: Record<string, number>,
  other: Record<string, number>,
): Record<string, number> {
  const sum = { ...one };
  for (const [reason, times] of Object.entries(other)) sum[reason] = (sum[reason] ?? 0) + times;
  return sum;
}

/** The refusals as a part of a sentence; empty if there are none. */
export function refusedWords(progress: Progress): string {
  if (!progress.refused) return "";
  const why = Object.entries(progress.reasons).map(([reason, times]) => `${times}× ${reason}`);
  return `${progress.refused} could not be${why.length ? `: ${why.join("; ")}` : ""}`;
}

/** The action that undoes another one for named jobs; null if there is none. */
export function undoOf(action: BulkAction): BulkAction | null {
  if (action === "cancel") return "retry";
  if (action === "retry") return "cancel";
  return null;
}
