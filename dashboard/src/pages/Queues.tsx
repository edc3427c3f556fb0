// Queues, tenants and the policy: depths, shares and limits, and forms to change them.

import { type FormEvent, useState } from "react";
import type { Problem } from "../api/client";
import { call } from "../api/client";
import { line } from "../api/live";
import type { QueueView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { usePages } from "../api/use";
import { rotaLine } from "../lib/commands";
import { count, rateWords } from "../lib/format";
import { pageOf } from "../lib/router";
import { length } from "../lib/time";
import { ActionButton, CommandLines, useNotify } from "../parts/Actions";
import { Empty, Link, Loading, PageHead, Status, Trouble } from "../parts/basics";
import { Dialog, DialogEnd } from "../parts/Dialog";
import { PolicyPanel } from "../parts/PolicyPanel";
import { type Column, Table } from "../parts/Table";
import { Tenants } from "../parts/Tenants";

export function Queues() {
  const pages = usePages("GET /queues", { query: { limit: 200 } }, { every: 1_500 });
  const [editing, setEditing] = useState<QueueView | null>(null);
  const operate = useMay("operate");
  const most = Math.max(1, ...pages.items.map((queue) => queue.depth.queued + queue.depth.pending));
  return (
    <>
      <PageHead title="Queues and tenants" />
      <Trouble error={pages.error} />
      {pages.isPending ? <Loading what="queues" /> : null}
      {pages.data && !pages.items.length ? (
        <Empty title="No queues yet." command="rota submit --queue reports -- echo hello">
          A queue is created on first use, without limits. You can change it here afterwards.
        </Empty>
      ) : null}
      {pages.items.length ? (
        <Table
          label="Queues"
          items={pages.items}
          id={(queue) => queue.name}
          to={(queue) =>
            pageOf.jobs(`queue=${encodeURIComponent(queue.name)}&status=pending,queued,running`)
          }
          columns={columns(most, operate ? setEditing : null)}
        />
      ) : null}
      {pages.hasNextPage ? (
        <p className="more">
          <button type="button" onClick={() => void pages.fetchNextPage()}>
            More queues
          </button>
        </p>
      ) : null}
      <div className="below">
        <Tenants />
        <PolicyPanel />
      </div>
      {editing ? <EditQueue queue={editing} onClose={() => setEditing(null)} /> : null}
    </>
  );
}

function columns(most: number, edit: ((queue: QueueView) => void) | null): Column<QueueView>[] {
  const to = (queue: QueueView, status: string) =>
    pageOf.jobs(`queue=${encodeURIComponent(queue.name)}&status=${status}`);
  return [
    {
      head: "Queue",
      kind: "wide",
      cell: (queue) => (
        <>
          <Link className="name" to={pageOf.jobs(`queue=${encodeURIComponent(queue.name)}`)}>
            {queue.name}
          </Link>{" "}
          {queue.paused ? <Status of="paused" /> : null}
        </>
      ),
    },
    {
      head: "Ready",
      kind: "number",
      cell: (queue) => <Link to={to(queue, "queued")}>{count(queue.depth.queued)}</Link>,
    },
    {
      head: <span className="hidden">Share of the longest</span>,
      kind: "minor",
      cell: (queue) => (
        <svg className="depth" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
          <rect
            className="fill tone-wait"
            width={(100 * (queue.depth.queued + queue.depth.pending)) / most}
            height="8"
          />
        </svg>
      ),
    },
    {
      head: "Later",
      kind: "number",
      cell: (queue) => <Link to={to(queue, "pending")}>{count(queue.depth.pending)}</Link>,
    },
    {
      head: "Running",
      kind: "number",
      cell: (queue) => (
        <Link to={to(queue, "running,cancelling")}>
          {count(queue.depth.running + queue.depth.cancelling)}
          {queue.max_workers === null ? "" : ` / ${count(queue.max_workers)}`}
        </Link>
      ),
    },
    { head: "Finished per second", kind: "minor", cell: (queue) => rateWords(queue.rate ?? null) },
    {
      head: "Limit",
      kind: "minor",
      cell: (queue) =>
        queue.rate_limit
          ? `${count(queue.rate_limit.count)} per ${length(queue.rate_limit.per)}`
          : "–",
    },
    { head: "Weight", kind: "minor", cell: (queue) => String(queue.weight) },
    { head: "Priority", kind: "minor", cell: (queue) => String(queue.priority) },
    {
      head: <span className="hidden">Actions</span>,
      cell: (queue) => <QueueActs queue={queue} edit={edit} />,
    },
  ];
}

function QueueActs(props: { queue: QueueView; edit: ((queue: QueueView) => void) | null }) {
  const { queue } = props;
  const path = { name: queue.name };
  const pause = {
    call: "POST /queues/{name}/pause",
    asked: { path },
    rota: rotaLine("queues", "pause", queue.name),
  } as const;
  const resume = {
    call: "POST /queues/{name}/resume",
    asked: { path },
    rota: rotaLine("queues", "resume", queue.name),
  } as const;
  return (
    <span className="row-acts">
      <ActionButton
        small
        needs="operate"
        label={queue.paused ? "Resume" : "Pause"}
        act={queue.paused ? resume : pause}
        undo={queue.paused ? pause : resume}
        done={`${queue.name} is ${queue.paused ? "resumed" : "paused; running jobs continue"}.`}
      />
      {props.edit ? (
        <button type="button" className="small" onClick={() => props.edit?.(queue)}>
          Limits
        </button>
      ) : null}
      <ActionButton
        small
        danger
        needs="operate"
        label="Purge"
        confirm={`All waiting jobs of ${queue.name} are cancelled: ${count(queue.depth.queued + queue.depth.pending)} jobs now.`}
        act={{
          call: "POST /queues/{name}/purge",
          asked: { path },
          rota: rotaLine("queues", "purge", queue.name),
        }}
        done={`${queue.name} is empty.`}
      />
    </span>
  );
}

function EditQueue(props: { queue: QueueView; onClose: () => void }) {
  const { queue } = props;
  const say = useNotify();
  const [weight, setWeight] = useState(String(queue.weight));
  const [priority, setPriority] = useState(String(queue.priority));
  const [most, setMost] = useState(queue.max_workers === null ? "" : String(queue.max_workers));
  const [rate, setRate] = useState(
    queue.rate_limit ? `${queue.rate_limit.count}/${queue.rate_limit.per}s` : "",
  );
  const [problem, setProblem] = useState<Problem | null>(null);
  const parts = /^\s*(\d+)\s*\/\s*(\S+)\s*$/.exec(rate);
  const body = {
    weight: Number(weight),
    priority: Number(priority),
    max_workers: most === "" ? null : Number(most),
    rate_limit: parts ? { count: Number(parts[1]), per: parts[2] } : null,
  };
  const act = {
    call: "PATCH /queues/{name}",
    asked: { path: { name: queue.name }, body },
    rota: rotaLine(
      "queues",
      "set",
      queue.name,
      `--weight=${weight}`,
      `--priority=${priority}`,
      `--max-workers=${most || "none"}`,
      `--rate=${parts ? rate.trim() : "none"}`,
    ),
  } as const;
  const save = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await call(act.call, act.asked);
      say(`${queue.name} is changed.`);
      props.onClose();
      line.readAll();
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  return (
    <Dialog title={`Limits of ${queue.name}`} onClose={props.onClose}>
      <form onSubmit={(event) => void save(event)}>
        <div className="fields">
          <label className="field">
            Weight (share among the tenant's queues)
            <input
              type="number"
              min="0.001"
              step="any"
              required
              value={weight}
              onChange={(e) => setWeight(e.target.value)}
            />
          </label>
          <label className="field">
            Priority (higher is first)
            <input
              type="number"
              min={-1000}
              max={1000}
              required
              value={priority}
              onChange={(e) => setPriority(e.target.value)}
            />
          </label>
          <label className="field">
            Executions at once (empty: no limit)
            <input type="number" min={0} value={most} onChange={(e) => setMost(e.target.value)} />
          </label>
          <label className="field">
            Rate limit, such as 100/1m (empty: no limit)
            <input
              value={rate}
              pattern="\s*\d+\s*/\s*\S+\s*"
              onChange={(e) => setRate(e.target.value)}
            />
          </label>
        </div>
        <Trouble error={problem} />
        <CommandLines act={act} />
        <DialogEnd onClose={props.onClose}>Save</DialogEnd>
      </form>
    </Dialog>
  );
}
