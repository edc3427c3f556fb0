// What can be done to a job, by where it is.

import { useState } from "react";
import type { JobView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { useCall } from "../api/use";
import { bandOf, cancelWords, memberOf } from "../lib/band";
import { rotaLine } from "../lib/commands";
import { go, pageOf } from "../lib/router";
import { isFinal, RETRIABLE } from "../lib/status";
import { ActButton, CommandLines } from "./Acts";
import { Empty } from "./basics";
import { Dialog } from "./Dialog";

export function JobActs(props: { job: JobView }) {
  const { job } = props;
  const path = { job_id: job.job_id };
  const [placing, setPlacing] = useState(false);
  const operate = useMay("operate");
  const waits = job.status === "pending" || job.status === "queued";
  const band = bandOf(job);
  // A member is retried and deleted with its array or gang, never alone.
  const alone = memberOf(job) === null;
  const retry = {
    call: "POST /jobs/{job_id}/retry",
    asked: { path },
    rota: rotaLine("retry", job.job_id),
  } as const;
  return (
    <>
      {alone && RETRIABLE.includes(job.status) ? (
        <ActButton
          label="Retry"
          needs="submit"
          act={retry}
          done="It starts over."
          {...(band?.kind === "array"
            ? { confirm: "Only members that did not succeed run again; the others' results stay." }
            : {})}
        />
      ) : null}
      {isFinal(job.status) ? null : (
        <ActButton
          label="Cancel"
          needs="submit"
          danger
          confirm={cancelWords(job)}
          act={{
            call: "PUT /jobs/{job_id}/cancel",
            asked: { path },
            rota: rotaLine("cancel", job.job_id),
          }}
          done="Cancelled."
          {...(waits && alone ? { undo: retry } : {})}
        />
      )}
      {waits && operate && !band ? (
        <button type="button" onClick={() => setPlacing(true)}>
          Run on a worker
        </button>
      ) : null}
      {alone && isFinal(job.status) ? (
        <ActButton
          label="Delete"
          needs="submit"
          danger
          confirm={`The job, ${band ? "all its members, " : ""}its tries, logs and files go. This cannot be undone.`}
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
        Past its time, the order and a pause; not past its dependencies or what the worker has free.
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
            <ActButton
              label="Run it there"
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
