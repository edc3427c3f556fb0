// One job: where it is and why, its story, every try with its log, what hangs together with it.

import { type ReactNode, useState } from "react";
import type { ExecutionView, JobView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { useCall } from "../api/use";
import { rotaLine } from "../lib/commands";
import {
  amount,
  bytes,
  count,
  errorLine,
  isEmpty,
  pretty,
  quote,
  shortId,
  taskLine,
} from "../lib/format";
import { go, pageOf, setSearch, useSearch } from "../lib/router";
import { isFinal, RETRIABLE } from "../lib/status";
import { exact, length } from "../lib/time";
import { ActButton, CommandLines } from "../parts/Acts";
import {
  Ago,
  Command,
  Copy,
  Empty,
  Facts,
  Link,
  Loading,
  PageHead,
  Panel,
  Status,
  Took,
  Trouble,
} from "../parts/basics";
import { Dialog } from "../parts/Dialog";
import { GraphView } from "../parts/GraphView";
import { JobStory } from "../parts/JobStory";
import { LogView } from "../parts/LogView";

const TABS = ["log", "tries", "graph", "details"] as const;

export function Job(props: { id: string }) {
  const path = { job_id: props.id };
  const found = useCall("GET /jobs/{job_id}", { path }, { every: 1_000 });
  const tries = useCall(
    "GET /executions",
    { query: { job_id: props.id, limit: 50 } },
    { every: 1_500 },
  );
  const search = useSearch();
  const job = found.data;
  if (found.error && !job)
    return (
      <>
        <PageHead title="Job" sub={props.id} />
        <Trouble error={found.error} />
        <p>
          It may have been deleted, or is past the time that finished jobs are kept.{" "}
          <Link to={pageOf.jobs()}>All jobs</Link>
        </p>
      </>
    );
  if (!job) return <Loading what="the job" />;
  const executions = tries.data?.items ?? [];
  const tab = TABS.find((one) => one === search.get("tab")) ?? "log";
  return (
    <>
      <PageHead
        title={
          <>
            {job.name} <Status of={job.status} note={job.reason} />
          </>
        }
        sub={
          <>
            <span className="id">{job.job_id}</span> <Copy text={job.job_id} /> in{" "}
            <Link to={pageOf.jobs(`queue=${encodeURIComponent(job.queue)}`)}>{job.queue}</Link>,
            submitted <Ago time={job.created_at} />
          </>
        }
      >
        <JobActs job={job} />
      </PageHead>
      {job.status === "running" && job.progress !== null ? (
        <p className="job-progress">
          <progress max={1} value={job.progress} aria-label="Progress" />{" "}
          {Math.round(job.progress * 100)} % <span className="soft">{job.message}</span>
        </p>
      ) : null}
      {isFinal(job.status) ? null : <Why job={job} />}
      {job.error !== null ? (
        <div className="trouble" role="note">
          <strong>Error</strong> {errorLine(job.error)}
        </div>
      ) : null}
      <Panel label="Story">
        <JobStory job={job} executions={executions} />
      </Panel>
      <div className="tabs" role="tablist">
        {TABS.map((one) => (
          <button
            key={one}
            type="button"
            role="tab"
            id={`tab-${one}`}
            aria-selected={tab === one}
            aria-controls="tab-panel"
            onClick={() => setSearch({ tab: one === "log" ? "" : one })}
          >
            {one === "tries"
              ? `Tries ${count(executions.length)}`
              : one[0]?.toUpperCase() + one.slice(1)}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`}>
        {tab === "log" ? <Log job={job} executions={executions} /> : null}
        {tab === "tries" ? <Tries job={job} executions={executions} /> : null}
        {tab === "graph" ? <Graph id={props.id} /> : null}
        {tab === "details" ? <Details job={job} /> : null}
      </div>
    </>
  );
}

function JobActs(props: { job: JobView }) {
  const { job } = props;
  const path = { job_id: job.job_id };
  const [placing, setPlacing] = useState(false);
  const operate = useMay("operate");
  const waits = job.status === "pending" || job.status === "queued";
  const retry = {
    call: "POST /jobs/{job_id}/retry",
    asked: { path },
    rota: rotaLine("retry", job.job_id),
  } as const;
  return (
    <>
      {RETRIABLE.includes(job.status) ? (
        <ActButton label="Retry" needs="submit" act={retry} done="It starts over." />
      ) : null}
      {isFinal(job.status) ? null : (
        <ActButton
          label="Cancel"
          needs="submit"
          danger
          confirm={
            job.status === "running"
              ? "Its worker stops it: SIGTERM, some grace, then SIGKILL for the whole process tree."
              : "It is cancelled before it starts."
          }
          act={{
            call: "PUT /jobs/{job_id}/cancel",
            asked: { path },
            rota: rotaLine("cancel", job.job_id),
          }}
          done="Cancelled."
          {...(waits ? { undo: retry } : {})}
        />
      )}
      {waits && operate ? (
        <button type="button" onClick={() => setPlacing(true)}>
          Run on a worker
        </button>
      ) : null}
      {isFinal(job.status) ? (
        <ActButton
          label="Delete"
          needs="submit"
          danger
          confirm="The job, its tries, logs and files go. This cannot be undone."
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

function Why(props: { job: JobView }) {
  const found = useCall(
    "GET /jobs/{job_id}/why",
    { path: { job_id: props.job.job_id } },
    { every: 2_000 },
  );
  const why = found.data;
  if (!why || props.job.status === "running" || props.job.status === "cancelling") return null;
  return (
    <div className="why" role="note">
      <h2>Why it is not running</h2>
      <p>
        <strong>{why.cause.message}</strong> <span className="soft code">{why.cause.code}</span>
      </p>
      <Figures figures={why.cause.figures} />
      {why.others.length ? (
        <ul>
          {why.others.map((one) => (
            <li key={one.code + one.message}>
              {one.message} <span className="soft code">{one.code}</span>
            </li>
          ))}
        </ul>
      ) : null}
      <p>
        {why.estimated_start.at ? (
          <>
            Expected to start <Ago time={why.estimated_start.at} />{" "}
            <span className="soft">({why.estimated_start.method.replaceAll("_", " ")})</span>
          </>
        ) : (
          <span className="soft">When it may start cannot be said yet.</span>
        )}
      </p>
      <Command text={rotaLine("why", props.job.job_id)} />
    </div>
  );
}

function Figures(props: { figures: Record<string, unknown> }) {
  const entries = Object.entries(props.figures).filter(([name]) => name !== "at");
  if (!entries.length) return null;
  return (
    <Facts
      items={entries.map(([name, value]) => [name.replaceAll("_", " "), figure(name, value)])}
    />
  );
}

const AN_ID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;

function figure(name: string, value: unknown): ReactNode {
  if (typeof value === "string" && AN_ID.test(value)) {
    const worker = /worker|nearest/.test(name);
    return <Link to={worker ? pageOf.worker(value) : pageOf.job(value)}>{shortId(value)}</Link>;
  }
  if (Array.isArray(value)) {
    return value.map((one) => <div key={String(one)}>{figure(name, one)}</div>);
  }
  if (value !== null && typeof value === "object") {
    return Object.entries(value)
      .map(([key, one]) => `${key} ${String(one)}`)
      .join(", ");
  }
  return String(value);
}

function Log(props: { job: JobView; executions: readonly ExecutionView[] }) {
  const asked = useSearch().get("try");
  const { executions } = props;
  const chosen = executions.find((one) => one.execution_id === asked) ?? executions[0];
  if (!chosen)
    return (
      <Empty title="No try yet, so no log.">
        The log appears here, live, as soon as a worker has the job.
      </Empty>
    );
  return (
    <>
      {executions.length > 1 ? (
        <label className="field inline">
          Try
          <select
            value={chosen.execution_id}
            onChange={(event) => setSearch({ try: event.target.value })}
          >
            {executions.map((one) => (
              <option key={one.execution_id} value={one.execution_id}>
                {one.attempt}: {one.status} on {shortId(one.worker_id)}
              </option>
            ))}
          </select>
        </label>
      ) : null}
      <LogView
        key={chosen.execution_id}
        executionId={chosen.execution_id}
        live={!chosen.end_time}
        fileName={`${props.job.name.replace(/[^\w.-]+/g, "_").slice(0, 60)}-${shortId(props.job.job_id)}-${chosen.fence}.log`}
      />
    </>
  );
}

function Tries(props: { job: JobView; executions: readonly ExecutionView[] }) {
  if (!props.executions.length) return <Empty title="No try yet." />;
  return (
    <>
      {props.executions.map((one) => (
        <Panel
          key={one.execution_id}
          title={
            <>
              Try {one.attempt} <Status of={one.status} note={one.reason} />
            </>
          }
          acts={<Link to={`?try=${one.execution_id}`}>Log</Link>}
        >
          <Facts
            items={[
              [
                "Worker",
                <Link key="w" to={pageOf.worker(one.worker_id)}>
                  {shortId(one.worker_id)}
                </Link>,
              ],
              ["Claimed", exact(one.claimed_at)],
              [
                "Ran for",
                <Took key="t" from={one.start_time ?? one.claimed_at} to={one.end_time} />,
              ],
              ["Exit code", one.exit_code === null ? null : String(one.exit_code)],
              ["Fence", String(one.fence)],
              ["Error", one.error === null ? null : errorLine(one.error)],
            ]}
          />
          <Usage execution={one} job={props.job} />
          <Artifacts execution={one} />
        </Panel>
      ))}
    </>
  );
}

const SHOWN_AS: Record<string, (value: number) => string> = {
  cpu_seconds: (value) => length(value),
  user_seconds: (value) => length(value),
  system_seconds: (value) => length(value),
  wall_seconds: (value) => length(value),
  memory: bytes,
  memory_max: bytes,
  memory_peak: bytes,
  max_rss: bytes,
};

function Usage(props: { execution: ExecutionView; job: JobView }) {
  const usage = props.execution.usage;
  if (usage === null || typeof usage !== "object" || Array.isArray(usage)) return null;
  const asked = props.job.requirements;
  return (
    <Facts
      items={[
        ...Object.entries(usage).map(
          ([name, value]) =>
            [
              name.replaceAll("_", " "),
              typeof value === "number"
                ? (SHOWN_AS[name] ?? ((one: number) => String(Number(one.toFixed(3)))))(value)
                : JSON.stringify(value),
            ] as const,
        ),
        [
          "asked for",
          `${amount("cpu", asked.cpu)} cpu${asked.memory ? `, ${bytes(asked.memory)}` : ""}`,
        ],
      ]}
    />
  );
}

function Artifacts(props: { execution: ExecutionView }) {
  const files = props.execution.artifacts as { name?: string; size?: number }[];
  if (!files.length) return null;
  return (
    <ul className="plain-list">
      {files.map((file) => (
        <li key={file.name}>
          <a
            href={`/executions/${encodeURIComponent(props.execution.execution_id)}/artifacts/${encodeURIComponent(file.name ?? "")}`}
            download
          >
            {file.name}
          </a>{" "}
          <span className="soft">{bytes(file.size ?? 0)}</span>
        </li>
      ))}
    </ul>
  );
}

function Graph(props: { id: string }) {
  const found = useCall(
    "GET /jobs/{job_id}/graph",
    { path: { job_id: props.id } },
    { every: 5_000 },
  );
  if (found.error) return <Trouble error={found.error} />;
  if (!found.data) return <Loading what="the graph" />;
  if (found.data.nodes.length < 2)
    return (
      <Empty
        title="It depends on no other job, and none on it."
        command={rotaLine("submit", "--after", props.id, "--", "echo", "next")}
      >
        Jobs can wait for others; this one would go first:
      </Empty>
    );
  return <GraphView graph={found.data} current={props.id} />;
}

function Details(props: { job: JobView }) {
  const { job } = props;
  const needs = job.requirements;
  const resources = [
    `${needs.cpu} cpu`,
    needs.memory ? bytes(needs.memory) : "",
    needs.storage ? `${bytes(needs.storage)} storage` : "",
    needs.gpu ? `${needs.gpu} gpu` : "",
    ...Object.entries(needs.custom).map(([name, value]) => `${value} ${name}`),
    ...needs.capabilities,
  ].filter(Boolean);
  return (
    <>
      <Panel title="Task">
        <Command text={taskLine(job.task)} />
        <details>
          <summary>As JSON</summary>
          <pre className="json">{pretty(job.task)}</pre>
        </details>
      </Panel>
      <Panel title="Terms">
        <Facts
          items={[
            ["Tenant", job.tenant],
            ["Priority", String(job.priority)],
            ["Needs", resources.join(", ")],
            [
              "Attempts",
              `${job.attempt} of ${job.retry.max_attempts}, ${job.retry.backoff} from ${length(job.retry.delay)}`,
            ],
            ["Lost workers", job.losses ? String(job.losses) : null],
            ["Timeout", job.timeout === null ? "none" : length(job.timeout)],
            [
              "Expected to run",
              job.expected_runtime === null ? null : length(job.expected_runtime),
            ],
            ["Due", job.run_at && exact(job.run_at)],
            ["Expires", job.expires_at && exact(job.expires_at)],
            ["Semantics", job.semantics.replaceAll("_", " ")],
            ["Key", job.concurrency && `${job.concurrency.key}, ${job.concurrency.limit} at once`],
            [
              "Schedule",
              job.schedule_id && (
                <Link key="s" to={pageOf.schedule(job.schedule_id)}>
                  {shortId(job.schedule_id)}
                </Link>
              ),
            ],
            [
              "Trigger",
              job.trigger_id && (
                <Link key="t" to={pageOf.trigger(job.trigger_id)}>
                  {shortId(job.trigger_id)}
                </Link>
              ),
            ],
            [
              "Labels",
              Object.entries(job.labels)
                .map(([key, value]) => `${key}:${value}`)
                .join("  "),
            ],
          ]}
        />
      </Panel>
      {isEmpty(job.payload) ? null : (
        <Panel title="Payload" acts={<Copy text={pretty(job.payload)} />}>
          <pre className="json">{pretty(job.payload)}</pre>
        </Panel>
      )}
      {job.result === null ? null : (
        <Panel title="Result" acts={<Copy text={pretty(job.result)} />}>
          <pre className="json">{pretty(job.result)}</pre>
        </Panel>
      )}
      {job.error === null ? null : (
        <Panel title="Error" acts={<Copy text={pretty(job.error)} />}>
          <pre className="json">{pretty(job.error)}</pre>
        </Panel>
      )}
      <Panel title="The same elsewhere">
        <Command text={rotaLine("show", job.job_id)} />
        <Command
          text={`curl -H "Authorization: Bearer $ROTA_TOKEN" ${quote(`${location.origin}/jobs/${job.job_id}`)}`}
        />
      </Panel>
    </>
  );
}
