// Actions on a job, by its state.

import { useState } from "react";
import type { JobView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { useCall } from "../api/use";
import { rotaLine } from "../lib/commands";
import { cancelText, groupOf, memberOf } from "../lib/group";
import { go, pageOf } from "../lib/router";
import { isFinal, RETRIABLE } from "../lib/status";
import { ActionButton, CommandLines } from "./Actions";
import { Empty } from "./basics";
import { Dialog } from "./Dialog";

export function JobActions(props: { job: JobView }) {
  const { job } = props;
  const path = { job_id: job.job_id };
  const [placing, setPlacing] = useState(false);
  const operate = useMay("operate");
  const waits = job.status === "pending" || job.status === "queued";
  const group = groupOf(job);
  // A member is retried and deleted only with its array or gang.
  const alone = memberOf(job) === null;
  const retry = {
    call: "POST /jobs/{job_id}/retry",
    asked: { path },
    rota: rotaLine("retry", job.job_id),
  } as const;
  return (
    <>
      {alone && RETRIABLE.includes(job.status) ? (
        <ActionButton
          label="Retry"
          needs="submit"
          act={retry}
          done="Queued again."
          {...(group?.kind === "array"
            ? {
                confirm:
                  "Only members that did not succeed run again. The results of the others stay.",
              }
            : {})}
        />
      ) : null}
      {isFinal(job.status) ? null : (
        <ActionButton
          label="Cancel"
          needs="submit"
          danger
          confirm={cancelText(job)}
          act={{
            call: "PUT /jobs/{job_id}/cancel",
            asked: { path },
            rota: rotaLine("cancel", job.job_id),
          }}
          done="Cancelled."
          {...(waits && alone ? { undo: retry } : {})}
        />
      )}
      {waits && operate && !group ? (
        <button type="button" onClick={() => setPlacing(true)}>
          Run on a worker
        </button>
      ) : null}
      {alone && isFinal(job.status) ? (
        <ActionButton
          label="Delete"
          needs="submit"
          danger
          confirm={`The job, ${group ? "all its members, " : ""}its executions, logs and files are deleted. This cannot be undone.`}
          act={{
            call: "DELETE /jobs/{job_id}",
            asked: { path },
            rota: rotaLine("delete", job.job_id),
          }}
          done="Deleted."
          onDone={() => go(pageOf.jobs())}
        />
      ) : null}
      {placing ? <PlaceDialog job={job} onClose={() => setPlacing(false)} /> : null}
    </>
  );
}

function PlaceDialog(props: { job: JobView; onClose: () => void }) {
  const workers = useCall("GET /workers", { query: { status: "online", limit: 200 } });
  const [worker, setWorker] = useState("");
  const chosen = worker || workers.data?.items[0]?.worker_id || "";
  const act = {
    call: "POST /jobs/{job_id}/execute",
    asked: { path: { job_id: props.job.job_id }, body: { worker_id: chosen } },
    rota: rotaLine("execute", props.job.job_id, "--worker", chosen),
  } as const;
  return (
    <Dialog title="Run on a worker" onClose={props.onClose}>
      <p>
        Ignores its start time, the queue order and a pause. Still respects its dependencies and the
        free capacity of the worker.
      </p>
      {workers.data?.items.length ? (
        <>
          <label className="field">
            Worker
            <select value={chosen} onChange={(event) => setWorker(event.target.value)}>
              {workers.data.items.map((one) => (
                <option key={one.worker_id} value={one.worker_id}>
                  {one.name}:{" "}
                  {Number((one.resources.cpu.capacity - one.resources.cpu.used).toFixed(2))} cpu
                  free
                </option>
              ))}
            </select>
          </label>
          <CommandLines act={act} />
          <div className="dialog-acts">
            <ActionButton
              label="Run on this worker"
              needs="operate"
              act={act}
              onDone={props.onClose}
              done="Sent to the worker."
            />
          </div>
        </>
      ) : (
        <Empty title="No worker is online." command="rota worker --server URL" />
      )}
    </Dialog>
  );
}
