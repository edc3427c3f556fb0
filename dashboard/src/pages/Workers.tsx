// Workers: what each has, uses and runs; drain and resume; lost executions.

import type { ExecutionView, JobView, WorkerView } from "../api/schema.gen";
import { useCall, usePages } from "../api/use";
import { type Act, rotaLine } from "../lib/commands";
import { amount, bytes, count, percent, plural, shortId } from "../lib/format";
import { pageOf, setSearch, useSearch } from "../lib/router";
import { exact } from "../lib/time";
import { ActionButton } from "../parts/Actions";
import {
  Ago,
  Empty,
  Facts,
  Link,
  Loading,
  Meter,
  PageHead,
  Panel,
  Status,
  Took,
  Trouble,
} from "../parts/basics";
import { Table } from "../parts/Table";
import { WorkerName } from "../parts/WorkerName";

/** Running jobs that are read for the cards, and jobs that one card names. */
const RUNNING_READ = 200;
const RUNNING_SHOWN = 4;
const STATES = ["online", "draining", "unhealthy", "offline"] as const;

export function Workers() {
  const status = useSearch().get("status") ?? "";
  const pages = usePages(
    "GET /workers",
    { query: { status, limit: 100 } },
    { every: 2_000, keep: true },
  );
  const stats = useCall("GET /stats", {}, { every: 5_000 });
  const running = useCall(
    "GET /jobs",
    { query: { status: "running,cancelling", limit: RUNNING_READ } },
    { every: 2_000 },
  );
  const workers = pages.items;
  return (
    <>
      <PageHead title="Workers" sub={stats.data ? `${stats.data.workers.online ?? 0} online` : ""}>
        <div className="chips" role="group" aria-label="Status">
          {STATES.map((one) => (
            <button
              key={one}
              type="button"
              className="chip"
              aria-pressed={status === one}
              onClick={() => setSearch({ status: status === one ? "" : one })}
            >
              {one} {stats.data?.workers[one] ?? ""}
            </button>
          ))}
        </div>
      </PageHead>
      <Trouble error={pages.error} />
      {pages.isPending ? <Loading what="workers" /> : null}
      {pages.data && !workers.length ? (
        <Empty
          title={status ? `No worker is ${status}.` : "No workers yet."}
          command={`rota worker --server ${location.origin}`}
        >
          Workers run jobs. Start one on any machine that reaches this server, with a token of the
          role worker:
        </Empty>
      ) : null}
      <div className="grid">
        {workers.map((worker) => (
          <WorkerCard
            key={worker.worker_id}
            worker={worker}
            jobs={(running.data?.items ?? []).filter((job) => job.worker_id === worker.worker_id)}
          />
        ))}
      </div>
      {pages.hasNextPage ? (
        <p className="more">
          <button type="button" onClick={() => void pages.fetchNextPage()}>
            More workers
          </button>
        </p>
      ) : null}
      <div className="below">
        <LostExecutions />
      </div>
    </>
  );
}

function WorkerCard(props: { worker: WorkerView; jobs: readonly JobView[] }) {
  const { worker, jobs } = props;
  const shown = jobs.slice(0, RUNNING_SHOWN);
  const more = worker.executions.length - shown.length;
  return (
    <Panel
      title={
        <>
          <Link to={pageOf.worker(worker.worker_id)}>{worker.name}</Link>{" "}
          <Status of={worker.status} />
        </>
      }
      acts={<DrainButton worker={worker} />}
    >
      <Resources worker={worker} />
      <p className="soft small spread">
        <span>{plural(worker.executions.length, "job")} running</span>
        <span>
          last heartbeat <Ago time={worker.last_heartbeat} />
        </span>
      </p>
      {shown.length ? (
        <ul className="plain-list small">
          {shown.map((job) => (
            <li key={job.job_id} className="spread">
              <Link to={pageOf.job(job.job_id)}>{job.name}</Link>
              <span className="soft">
                {job.progress === null ? "" : `${percent(job.progress)}, `}
                <Took from={job.started_at} />
              </span>
            </li>
          ))}
          {more > 0 ? (
            <li>
              <Link to={pageOf.worker(worker.worker_id)}>and {count(more)} more</Link>
            </li>
          ) : null}
        </ul>
      ) : null}
    </Panel>
  );
}

function DrainButton(props: { worker: WorkerView }) {
  const { worker } = props;
  const asked = { path: { worker_id: worker.worker_id } };
  const drain: Act = {
    call: "POST /workers/{worker_id}/drain",
    asked,
    rota: rotaLine("workers", "drain", worker.worker_id),
  };
  const resume: Act = {
    call: "POST /workers/{worker_id}/resume",
    asked,
    rota: rotaLine("workers", "resume", worker.worker_id),
  };
  if (worker.status === "draining")
    return (
      <ActionButton
        label="Resume"
        small
        needs="operate"
        act={resume}
        undo={drain}
        done={`${worker.name} takes work again.`}
      />
    );
  if (worker.status !== "online" && worker.status !== "unhealthy") return null;
  return (
    <ActionButton
      label="Drain"
      small
      needs="operate"
      confirm={`${worker.name} gets no new work until it is resumed; what it runs goes on.`}
      act={drain}
      undo={resume}
      done={`${worker.name} drains.`}
    />
  );
}

function Resources(props: { worker: WorkerView }) {
  const { custom, ...fixed } = props.worker.resources;
  const kinds = Object.entries({ ...fixed, ...custom }).filter(([, one]) => one.capacity > 0);
  return (
    <>
      {kinds.map(([kind, one]) => (
        <Meter
          key={kind}
          label={kind}
          used={one.used}
          capacity={one.capacity}
          text={`${amount(kind, one.used)} / ${amount(kind, one.capacity)}`}
        />
      ))}
    </>
  );
}

export function Worker(props: { id: string }) {
  const found = useCall(
    "GET /workers/{worker_id}",
    { path: { worker_id: props.id } },
    { every: 2_000 },
  );
  const runs = useCall("GET /timeline", { query: { worker_id: props.id } }, { every: 3_000 });
  const worker = found.data;
  if (!worker) return found.error ? <Trouble error={found.error} /> : <Loading what="worker" />;
  const bars = runs.data?.items ?? [];
  return (
    <>
      <PageHead
        title={
          <>
            {worker.name} <Status of={worker.status} />
          </>
        }
        sub={<span className="id">{worker.worker_id}</span>}
      >
        <DrainButton worker={worker} />
        <ActionButton
          label="Remove"
          danger
          needs="operate"
          confirm="Its running jobs run again on other workers. If the worker still runs, it registers again."
          act={{
            call: "DELETE /workers/{worker_id}",
            asked: { path: { worker_id: worker.worker_id } },
            rota: rotaLine("workers", "remove", worker.worker_id),
          }}
          done="Removed."
        />
      </PageHead>
      <div className="pair">
        <Panel title="Resources">
          <Resources worker={worker} />
        </Panel>
        <Panel title="About">
          <Facts
            items={[
              ["Registered", exact(worker.registered_at)],
              ["Last heartbeat", <Ago key="h" time={worker.last_heartbeat} />],
              ["Queues", worker.queues === null ? "all" : worker.queues.join(", ")],
              ["Capabilities", worker.capabilities.join(", ")],
              ...Object.entries(worker.usage).map(
                ([kind, value]) =>
                  [
                    `measured ${kind}`,
                    kind === "memory" || kind === "storage" ? bytes(Number(value)) : String(value),
                  ] as const,
              ),
            ]}
          />
        </Panel>
      </div>
      <Panel title="Executions in the last hour">
        <Trouble error={runs.error} />
        {bars.length ? (
          <Table
            label="Executions"
            items={bars.slice(0, 100)}
            id={(bar) => bar.execution_id}
            to={(bar) => pageOf.job(bar.job_id)}
            columns={[
              {
                head: "Job",
                kind: "wide",
                cell: (bar) => <Link to={pageOf.job(bar.job_id)}>{bar.name}</Link>,
              },
              { head: "Try", cell: (bar) => <Status of={bar.status} /> },
              { head: "Began", kind: "number", cell: (bar) => <Ago time={bar.start} /> },
              {
                head: "Took",
                kind: "number",
                cell: (bar) => <Took from={bar.start} to={bar.end} />,
              },
            ]}
          />
        ) : (
          <p className="soft">Nothing.</p>
        )}
      </Panel>
      <LostExecutions worker={props.id} />
    </>
  );
}

/** Lost executions, of one worker or of all. */
function LostExecutions(props: { worker?: string }) {
  const lost = useCall(
    "GET /executions",
    { query: { worker_id: props.worker, status: "lost", limit: 20 } },
    { every: 10_000 },
  );
  return (
    <Panel title="Lost executions" label="Lost executions">
      <Trouble error={lost.error} />
      {lost.data?.items.length ? (
        <Table
          label="Lost executions"
          items={lost.data.items}
          id={(one) => one.execution_id}
          to={(one) => pageOf.job(one.job_id)}
          columns={[
            {
              head: "Job",
              cell: (one) => <Link to={pageOf.job(one.job_id)}>{shortId(one.job_id)}</Link>,
            },
            ...(props.worker
              ? []
              : [
                  {
                    head: "Worker",
                    cell: (one: ExecutionView) => <WorkerName id={one.worker_id} />,
                  },
                ]),
            { head: "Lost", kind: "number", cell: (one) => <Ago time={one.end_time} /> },
            { head: "Why", cell: (one) => one.reason ?? "worker silent" },
          ]}
        />
      ) : (
        <p className="soft">
          {props.worker ? "No lost executions on this worker." : "No lost executions."}
        </p>
      )}
    </Panel>
  );
}
