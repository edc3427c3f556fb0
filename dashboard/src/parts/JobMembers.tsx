// The members of an array or gang: numbers by state, and the members that have become jobs.

import type { JobView } from "../api/schema.gen";
import { usePages } from "../api/use";
import { type Act, rotaLine } from "../lib/commands";
import { count, errorLine, plural } from "../lib/format";
import { type JobGroup, memberOf } from "../lib/group";
import { pageOf, useSearch } from "../lib/router";
import { hasLength, SHAPES } from "../lib/status";
import { AsCommand } from "./Actions";
import { Ago, Empty, Link, Loading, Status, Took, Trouble } from "./basics";
import { type Column, Table } from "./Table";
import { WorkerName } from "./WorkerName";

const PAGE = 50;

/** All members as one bar; a click on a part filters the list. */
export function GroupBar(props: { job: JobView; group: JobGroup }) {
  const { group, job } = props;
  const chosen = useSearch().get("state");
  const shown = group.shares.filter((share) => share.count > 0);
  let x = 0;
  return (
    <div className="group-bar">
      <p>
        <strong>
          {group.kind === "array" ? "Array" : "Gang"} of {count(group.size)}
        </strong>
        {job.array?.max_parallel ? (
          <span className="soft">, at most {count(job.array.max_parallel)} at once</span>
        ) : null}
        {job.gang?.hosts?.length ? (
          <span className="soft"> on {[...new Set(job.gang.hosts)].join(", ")}</span>
        ) : null}
      </p>
      <svg
        viewBox="0 0 1000 14"
        preserveAspectRatio="none"
        role="img"
        aria-label={shown.map((share) => `${count(share.count)} ${share.state}`).join(", ")}
      >
        <rect className="track" width="1000" height="14" rx="3" />
        {shown.map((share) => {
          const left = x;
          x += (share.count / Math.max(1, group.size)) * 1000;
          return (
            <rect
              key={share.state}
              className={`fill tone-${share.tone}`}
              x={left}
              width={Math.max(2, x - left)}
              height="14"
            >
              <title>{`${count(share.count)} ${share.state}`}</title>
            </rect>
          );
        })}
      </svg>
      <ul className="chips">
        {group.shares.map((share) => (
          <li key={share.state}>
            <Link
              className={`chip tone-${share.tone}`}
              aria-current={chosen === share.state ? "true" : undefined}
              to={`${pageOf.job(job.job_id)}?tab=members&state=${share.state}`}
            >
              <span aria-hidden="true">{SHAPES[share.tone]}</span> {count(share.count)}{" "}
              {share.state}
            </Link>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** The states of the bar, and the job statuses of each. */
const STATUS_OF: Record<string, string> = {
  queued: "pending,queued",
  running: "running,cancelling",
  succeeded: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
};

export function Members(props: { job: JobView; group: JobGroup }) {
  const { group, job } = props;
  const asked = useSearch().get("state") ?? "";
  const status = STATUS_OF[asked] ?? "";
  const query = { array: job.job_id, status, limit: PAGE };
  const pages = usePages("GET /jobs", { query }, { every: 2_000, keep: true });
  const act: Act = {
    call: "GET /jobs",
    asked: { query },
    rota: rotaLine("jobs", "--array", job.job_id, ...(status ? ["--status", status] : [])),
  };
  return (
    <>
      {status ? (
        <p className="only">
          Only {asked} members. <Link to={pageOf.job(job.job_id)}>Show all</Link>
        </p>
      ) : null}
      <Trouble error={pages.error} />
      {pages.isPending ? <Loading what="members" /> : null}
      {pages.data && !pages.items.length && !pages.hasNextPage ? (
        <NoMembers group={group} state={status && asked} />
      ) : null}
      {pages.items.length ? (
        <Table
          label="Members"
          columns={COLUMNS}
          items={pages.items}
          id={(one) => one.job_id}
          to={(one) => pageOf.job(one.job_id)}
        />
      ) : null}
      {pages.hasNextPage ? (
        <p className="more">
          <button
            type="button"
            disabled={pages.isFetchingNextPage}
            onClick={() => void pages.fetchNextPage()}
          >
            {pages.isFetchingNextPage ? "Loading…" : "Earlier members"}
          </button>{" "}
          <span className="soft">{plural(pages.items.length, "member")} shown</span>
        </p>
      ) : null}
      <AsCommand act={act} />
    </>
  );
}

function NoMembers(props: { group: JobGroup; state: string }) {
  if (props.state && props.state !== "queued")
    return <Empty title={`No member is ${props.state}.`} />;
  return (
    <Empty title={props.state ? "No member waits to retry." : "No member has started yet."}>
      {props.group.kind === "array"
        ? "A member becomes a job, with its own page and log, when a worker takes it."
        : "All members start at once, as soon as there is free capacity for all of them."}
    </Empty>
  );
}

const COLUMNS: readonly Column<JobView>[] = [
  {
    head: "Member",
    kind: "number",
    cell: (one) => (
      <Link className="name" to={pageOf.job(one.job_id)}>
        {count(memberOf(one)?.index ?? 0)}
      </Link>
    ),
  },
  { head: "Status", cell: (one) => <Status of={one.status} note={one.reason} /> },
  {
    head: "Error",
    kind: "wide",
    cell: (one) => (one.error === null ? null : errorLine(one.error).slice(0, 160)),
  },
  {
    head: "Worker",
    kind: "minor",
    cell: (one) => (one.worker_id ? <WorkerName id={one.worker_id} /> : "–"),
  },
  { head: "Try", kind: "minor", cell: (one) => `${one.attempt}/${one.retry.max_attempts}` },
  { head: "Began", kind: "number", cell: (one) => <Ago time={one.started_at} /> },
  {
    head: "Took",
    kind: "number",
    cell: (one) => (hasLength(one) ? <Took from={one.started_at} to={one.finished_at} /> : "–"),
  },
];
