// All jobs: filters in the address, pages, and bulk actions.

import { type FormEvent, useMemo, useState } from "react";
import type { JobFilter, JobView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { useCall, usePages } from "../api/use";
import { type BulkAction, NAMED_MAX } from "../lib/bulk";
import {
  bulkFilterOf,
  type Filter,
  isEverything,
  queryOf,
  readFilter,
  resembles,
  understand,
  writeFilter,
} from "../lib/filter";
import { count, plural, shortId, taskLine } from "../lib/format";
import { groupOf, memberOf } from "../lib/group";
import { go, pageOf, useSearch } from "../lib/router";
import {
  hasLength,
  LIVE,
  SHAPES,
  STATUSES,
  type Status as StatusWord,
  toneOf,
} from "../lib/status";
import { BulkDialog } from "../parts/BulkDialog";
import { Ago, Empty, Link, Loading, PageHead, Status, Took, Trouble } from "../parts/basics";
import { type Column, Table } from "../parts/Table";

const PAGE = 50;

export function Jobs() {
  const search = useSearch();
  const filter = useMemo(() => readFilter(search), [search]);
  const pages = usePages(
    "GET /jobs",
    { query: { ...queryOf(filter), limit: PAGE } },
    { every: 2_000, keep: true },
  );
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const [bulk, setBulk] = useState<{ action: BulkAction; filter: JobFilter } | null>(null);
  const operate = useMay("operate");
  const [typed, setTyped] = useState("");
  const read = pages.items.filter((job) => job.job_id.startsWith(filter.id));
  const jobs = read.filter((job) => resembles(job, typed));
  const shown = jobs.map((job) => job.job_id);
  const selected = shown.filter((id) => picked.has(id));
  const act = (action: BulkAction) =>
    setBulk({
      action,
      filter: selected.length ? { job_ids: selected.slice(0, NAMED_MAX) } : bulkFilterOf(filter),
    });
  const toggle = (id: string) =>
    setPicked((old) => {
      const next = new Set(old);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  // The server cannot filter by the beginning of an id: with one, only selected jobs are acted on.
  const actable = selected.length > 0 || !(filter.id || isEverything(filter));
  const all = shown.length > 0 && selected.length === shown.length;
  return (
    <>
      <PageHead title="Jobs" sub="newest first" />
      <FilterBar filter={filter} typed={typed} onType={setTyped} />
      {typed.trim() ? (
        <p className="soft small only" role="status">
          {count(jobs.length)} of the {count(read.length)} shown fit; Enter asks for all.
        </p>
      ) : null}
      {operate ? (
        <div className="bulk-bar">
          <span className="soft">
            {selected.length
              ? `${plural(selected.length, "job")} selected`
              : !actable
                ? "Select or filter jobs for a bulk action"
                : "Actions on all matching jobs"}
          </span>
          {(["retry", "cancel", "reprioritise", "delete"] as const).map((action) => (
            <button
              key={action}
              type="button"
              className="small"
              disabled={!actable}
              onClick={() => act(action)}
            >
              {action === "reprioritise" ? "Priority" : action[0]?.toUpperCase() + action.slice(1)}
            </button>
          ))}
          {selected.length ? (
            <button type="button" className="quiet small" onClick={() => setPicked(new Set())}>
              Clear
            </button>
          ) : null}
        </div>
      ) : null}
      <Trouble error={pages.error} />
      {pages.isPending ? <Loading what="jobs" /> : null}
      {pages.data && !jobs.length && !typed.trim() ? (
        pages.hasNextPage ? (
          <Empty title="No match among the newest jobs.">Older jobs were not searched yet.</Empty>
        ) : (
          <NoJobs filter={filter} />
        )
      ) : null}
      {jobs.length ? (
        <Table
          label="Jobs"
          columns={COLUMNS}
          items={jobs}
          id={(job) => job.job_id}
          to={(job) => pageOf.job(job.job_id)}
          selection={
            operate
              ? {
                  has: (id) => picked.has(id),
                  toggle,
                  toggleAll: () => setPicked(all ? new Set() : new Set(shown)),
                  all,
                  some: selected.length > 0,
                }
              : undefined
          }
        />
      ) : null}
      {pages.hasNextPage ? (
        <p className="more">
          <button
            type="button"
            disabled={pages.isFetchingNextPage}
            onClick={() => void pages.fetchNextPage()}
          >
            {pages.isFetchingNextPage
              ? "Loading…"
              : jobs.length
                ? "Older jobs"
                : "Search older jobs"}
          </button>{" "}
          <span className="soft">{count(jobs.length)} shown</span>
        </p>
      ) : null}
      {bulk ? (
        <BulkDialog
          action={bulk.action}
          filter={bulk.filter}
          onClose={(acted) => {
            setBulk(null);
            if (acted) setPicked(new Set());
          }}
        />
      ) : null}
    </>
  );
}

/** Marks a job group, or a member of one. */
function Many(props: { job: JobView }) {
  const group = groupOf(props.job);
  const member = memberOf(props.job);
  if (group)
    return (
      <span className="chip">
        {group.kind} of {count(group.size)}
      </span>
    );
  return member ? <span className="soft small">member {count(member.index)}</span> : null;
}

const COLUMNS: readonly Column<JobView>[] = [
  {
    head: "Job",
    kind: "wide",
    cell: (job) => (
      <>
        <Link className="name" to={pageOf.job(job.job_id)}>
          {job.name}
        </Link>
        <span className="soft id" title={job.job_id}>
          {shortId(job.job_id)}
        </span>
        <Many job={job} />
        <span className="soft under">{taskLine(job.task).slice(0, 160)}</span>
      </>
    ),
  },
  {
    head: "Status",
    cell: (job) => (
      <Status
        of={job.status}
        note={
          job.status === "running" && job.progress !== null
            ? `${Math.round(job.progress * 100)} %`
            : job.reason
        }
      />
    ),
  },
  {
    head: "Queue",
    kind: "minor",
    cell: (job) => <Chip to={{ queue: job.queue }}>{job.queue}</Chip>,
  },
  {
    head: "Labels",
    kind: "minor",
    cell: (job) =>
      Object.entries(job.labels)
        .slice(0, 3)
        .map(([key, value]) => (
          <Chip key={key} to={{ label: `${key}:${value}` }}>
            {key}:{value}
          </Chip>
        )),
  },
  { head: "Try", kind: "minor", cell: (job) => `${job.attempt}/${job.retry.max_attempts}` },
  { head: "Submitted", kind: "number", cell: (job) => <Ago time={job.created_at} /> },
  {
    head: "Took",
    kind: "number",
    cell: (job) => (hasLength(job) ? <Took from={job.started_at} to={job.finished_at} /> : "–"),
  },
];

/** Adds a condition to the filter in the address. */
function Chip(props: { to: { queue?: string; label?: string }; children: React.ReactNode }) {
  const search = new URLSearchParams(location.search);
  if (props.to.queue) search.set("queue", props.to.queue);
  if (props.to.label && !search.getAll("label").includes(props.to.label))
    search.append("label", props.to.label);
  return (
    <Link className="chip" to={pageOf.jobs(search.toString())}>
      {props.children}
    </Link>
  );
}

const show = (filter: Filter): void => go(pageOf.jobs(writeFilter(filter).toString()), true);

function FilterBar(props: { filter: Filter; typed: string; onType: (text: string) => void }) {
  const { filter, typed, onType } = props;
  const queues = useCall("GET /queues", { query: { limit: 200 } }, { every: 30_000 });
  const add = (event: FormEvent) => {
    event.preventDefault();
    const meant = understand(typed, filter);
    if (meant.kind === "job") go(pageOf.job(meant.id));
    if (meant.kind === "filter") show(meant.filter);
    onType("");
  };
  const toggle = (status: StatusWord) =>
    show({
      ...filter,
      status: filter.status.includes(status)
        ? filter.status.filter((one) => one !== status)
        : [...filter.status, status],
    });
  const isLive =
    LIVE.every((one) => filter.status.includes(one)) && filter.status.length === LIVE.length;
  return (
    <div className="filter-bar">
      <div className="chips" role="group" aria-label="Status">
        <button
          type="button"
          className="chip"
          aria-pressed={isLive}
          onClick={() => show({ ...filter, status: isLive ? [] : [...LIVE] })}
        >
          live
        </button>
        {STATUSES.map((status) => (
          <button
            key={status}
            type="button"
            className={`chip tone-${toneOf(status)}`}
            aria-pressed={filter.status.includes(status)}
            onClick={() => toggle(status)}
          >
            <span aria-hidden="true">{SHAPES[toneOf(status)]}</span> {status}
          </button>
        ))}
      </div>
      <form className="chips" onSubmit={add}>
        <select
          aria-label="Queue"
          value={filter.queue}
          onChange={(event) => show({ ...filter, queue: event.target.value })}
        >
          <option value="">all queues</option>
          {[
            ...new Set([
              ...(queues.data?.items.map((queue) => queue.name) ?? []),
              ...(filter.queue ? [filter.queue] : []),
            ]),
          ].map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <input
          value={typed}
          onChange={(event) => onType(event.target.value)}
          placeholder="name, key:value, or an id"
          aria-label="Add a filter: a name, a label as key:value, or an id"
          spellCheck={false}
        />
        <Conditions filter={filter} />
      </form>
    </div>
  );
}

function Conditions(props: { filter: Filter }) {
  const { filter } = props;
  const single = (["id", "name", "tenant", "priority", "after", "before"] as const).filter(
    (key) => filter[key],
  );
  return (
    <>
      {single.map((key) => (
        <button
          key={key}
          type="button"
          className="chip on"
          onClick={() => show({ ...filter, [key]: "" })}
        >
          {key}: {filter[key]} <span aria-hidden="true">✕</span>
          <span className="hidden">remove</span>
        </button>
      ))}
      {filter.labels.map((label) => (
        <button
          key={label}
          type="button"
          className="chip on"
          onClick={() => show({ ...filter, labels: filter.labels.filter((one) => one !== label) })}
        >
          {label} <span aria-hidden="true">✕</span>
          <span className="hidden">remove</span>
        </button>
      ))}
      {isEverything(filter) ? null : (
        <button type="button" className="quiet small" onClick={() => go(pageOf.jobs(), true)}>
          Show all
        </button>
      )}
    </>
  );
}

function NoJobs(props: { filter: Filter }) {
  if (isEverything(props.filter))
    return (
      <Empty title="No jobs yet." command="rota submit --follow -- echo hello">
        A job is a command, a Python function, an HTTP call or a container. Submit the first one:
      </Empty>
    );
  return (
    <Empty title="No matching jobs.">
      A name must match exactly. <Link to={pageOf.jobs()}>Show all jobs</Link>
    </Empty>
  );
}
