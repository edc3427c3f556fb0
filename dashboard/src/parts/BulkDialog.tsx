// Dialog of a bulk action: the number of jobs, the command, and the progress.

import { useEffect, useRef, useState } from "react";
import type { Problem } from "../api/client";
import { line } from "../api/live";
import type { JobFilter } from "../api/schema.gen";
import {
  type BulkAction,
  type Progress,
  preview,
  refusedWords,
  runBulk,
  undoOf,
} from "../lib/bulk";
import { bulkLine } from "../lib/commands";
import { count, plural } from "../lib/format";
import { CommandLines, useNotify } from "./Actions";
import { Loading, Trouble } from "./basics";
import { Dialog } from "./Dialog";

const WORDS: Record<BulkAction, { title: string; done: string; warning: string }> = {
  cancel: { title: "Cancel jobs", done: "cancelled", warning: "Running jobs are stopped." },
  retry: {
    title: "Retry jobs",
    done: "started over",
    warning:
      "They start over with all their attempts. Jobs that were skipped because of them wait again. " +
      "For an array or gang that has ended, all members that did not succeed start over.",
  },
  delete: {
    title: "Delete jobs",
    done: "deleted",
    warning:
      "They cannot be restored. Arrays and gangs are deleted with their members; " +
      "members of one that has not ended stay.",
  },
  reprioritise: { title: "Change priority", done: "given the priority", warning: "" },
};

export function BulkDialog(props: {
  action: BulkAction;
  filter: JobFilter;
  onClose: (acted: boolean) => void;
}) {
  const { action, filter } = props;
  const words = WORDS[action];
  const say = useNotify();
  const [priority, setPriority] = useState(0);
  const [progress, setProgress] = useState<Progress | null>(null);
  const [running, setRunning] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const stopped = useRef(false);
  const asked = action === "reprioritise" ? priority : undefined;

  useEffect(() => {
    let gone = false;
    preview(action, filter, asked)
      .then((found) => {
        if (!gone) setProgress(found);
      })
      .catch((error: unknown) => {
        if (!gone) setProblem(error as Problem);
      });
    return () => {
      gone = true;
    };
  }, [action, filter, asked]);

  const run = async () => {
    setRunning(true);
    setProblem(null);
    try {
      const end = await runBulk(action, filter, {
        priority: asked,
        total: progress?.total ?? 0,
        notify: setProgress,
        stopped: () => stopped.current,
      });
      const back = filter.job_ids ? undoOf(action) : null;
      const refused = refusedWords(end);
      say(
        `${plural(end.done, "job")} ${words.done}${refused && `, ${refused}`}.`,
        back
          ? {
              undo: () => {
                void runBulk(back, filter, {
                  total: 0,
                  notify: () => undefined,
                  stopped: () => false,
                })
                  .then((undone) => say(`Undone for ${plural(undone.done, "job")}.`))
                  .finally(() => line.readAll());
              },
            }
          : {},
      );
      props.onClose(true);
    } catch (error) {
      setProblem(error as Problem);
    } finally {
      setRunning(false);
      line.readAll();
    }
  };
  const body = { action, filter, ...(asked === undefined ? {} : { priority: asked }) };
  const total = progress ? `${count(progress.total)}${progress.atLeast ? " or more" : ""}` : "";
  return (
    <Dialog
      title={words.title}
      onClose={() => {
        stopped.current = true;
        props.onClose(false);
      }}
    >
      {action === "reprioritise" ? (
        <label className="field">
          New priority (higher is first)
          <input
            type="number"
            min={-1000}
            max={1000}
            value={priority}
            onChange={(event) => setPriority(Number(event.target.value))}
          />
        </label>
      ) : null}
      {progress ? (
        <p>
          <strong data-testid="bulk-count">{total}</strong> {progress.total === 1 ? "job" : "jobs"}{" "}
          would be {words.done}. {words.warning}{" "}
          {filter.job_ids && undoOf(action) ? "You can undo this for a moment." : ""}
        </p>
      ) : problem ? null : (
        <Loading what="number of jobs" />
      )}
      {progress?.refused ? <p data-testid="bulk-refused">{refusedWords(progress)}.</p> : null}
      {running && progress ? (
        <p role="status">
          <progress max={Math.max(1, progress.total)} value={progress.done + progress.refused} />{" "}
          {count(progress.done)} done
        </p>
      ) : null}
      <Trouble error={problem} />
      <CommandLines
        act={{ call: "POST /jobs/bulk", asked: { body }, rota: bulkLine(action, filter, asked) }}
      />
      <div className="dialog-acts">
        <button
          type="button"
          onClick={() => {
            stopped.current = true;
            if (!running) props.onClose(false);
          }}
        >
          {running ? "Stop" : "Close"}
        </button>
        <button
          type="button"
          className={action === "delete" || action === "cancel" ? "danger primary" : "primary"}
          disabled={running || !(progress?.total || progress?.atLeast)}
          onClick={() => void run()}
        >
          {words.title}
        </button>
      </div>
    </Dialog>
  );
}
