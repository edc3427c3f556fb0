// One action on many jobs, piece by piece, so that it shows how far it is and can be stopped.

import { call } from "../api/client";
import type { BulkSpec, JobFilter } from "../api/schema.gen";

export type BulkAction = BulkSpec["action"];

const PIECE = 200;
/** Up to so many jobs are named one by one, which makes an undo possible. */
export const NAMED_MAX = 2_000;
const COUNTED_MAX = 10_000;

export interface Progress {
  done: number;
  refused: number;
  /** Why they were refused, and how many for each reason. */
  reasons: Record<string, number>;
  total: number;
  /** There are more than were counted. */
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
    // Named jobs are asked for once each. A filter meets what was refused again with every piece.
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
    // Refused ones do not count, so nothing is left that could be done.
    if (!answer.more || answer.count === 0) break;
  }
  return progress;
}

/** Two lists of reasons as one. */
export function added(
  one: Record<string, number>,
  other: Record<string, number>,
): Record<string, number> {
  const sum = { ...one };
  for (const [reason, times] of Object.entries(other)) sum[reason] = (sum[reason] ?? 0) + times;
  return sum;
}

/** How many were refused and why, as a part of a sentence; empty where none was. */
export function refusedWords(progress: Progress): string {
  if (!progress.refused) return "";
  const why = Object.entries(progress.reasons).map(([reason, times]) => `${times}× ${reason}`);
  return `${progress.refused} could not be${why.length ? `: ${why.join("; ")}` : ""}`;
}

/** What takes an action back, for jobs that are named; null where nothing does. */
export function undoOf(action: BulkAction): BulkAction | null {
  if (action === "cancel") return "retry";
  if (action === "retry") return "cancel";
  return null;
}
