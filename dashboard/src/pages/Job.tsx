// One job: its state and the reason, its history, every execution with its log, its graph.

import type { ExecutionView, JobView } from "../api/schema.gen";
import { useCall } from "../api/use";
import { rotaLine } from "../lib/commands";
import { count, errorLine, shortId } from "../lib/format";
import { groupOf, memberOf } from "../lib/group";
import { pageOf, setSearch, useSearch } from "../lib/router";
import { Ago, Copy, Empty, Link, Loading, PageHead, Panel, Status, Trouble } from "../parts/basics";
import { GraphView } from "../parts/GraphView";
import { JobActions } from "../parts/JobActions";
import { Details } from "../parts/JobDetails";
import { Executions } from "../parts/JobExecutions";
import { GroupBar, Members } from "../parts/JobMembers";
import { JobTiming } from "../parts/JobTiming";
import { Why } from "../parts/JobWhy";
import { LogView } from "../parts/LogView";
import { useWorkerNames } from "../parts/WorkerName";

/** In a job group the members have the logs and executions. */
const GROUP_TABS = ["members", "graph", "details"] as const;
const JOB_TABS = ["log", "executions", "graph", "details"] as const;

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
          It may have been deleted, by a user or by retention.{" "}
          <Link to={pageOf.jobs()}>All jobs</Link>
        </p>
      </>
    );
  if (!job) return <Loading what="job" />;
  const executions = tries.data?.items ?? [];
  const group = groupOf(job);
  const tabs = group ? GROUP_TABS : JOB_TABS;
  const tab = tabs.find((one) => one === search.get("tab")) ?? tabs[0];
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
            <MemberLine job={job} />
          </>
        }
      >
        <JobActions job={job} />
      </PageHead>
      {group ? <GroupBar job={job} group={group} /> : null}
      {job.status === "running" && job.progress !== null && !group ? (
        <p className="job-progress">
          <progress max={1} value={job.progress} aria-label="Progress" />{" "}
          {Math.round(job.progress * 100)} % <span className="soft">{job.message}</span>
        </p>
      ) : null}
      <Why job={job} />
      {job.error !== null ? (
        <div className="trouble" role="note">
          <strong>Error</strong> {errorLine(job.error)}
        </div>
      ) : null}
      <Panel label="Timing">
        <JobTiming job={job} executions={executions} />
      </Panel>
      <div className="tabs" role="tablist">
        {tabs.map((one) => (
          <button
            key={one}
            type="button"
            role="tab"
            id={`tab-${one}`}
            aria-selected={tab === one}
            aria-controls="tab-panel"
            onClick={() => setSearch({ tab: one === tabs[0] ? "" : one })}
          >
            {one === "executions"
              ? `Executions ${count(executions.length)}`
              : one[0]?.toUpperCase() + one.slice(1)}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`}>
        {tab === "members" && group ? <Members job={job} group={group} /> : null}
        {tab === "log" ? <Log job={job} executions={executions} /> : null}
        {tab === "executions" ? <Executions job={job} executions={executions} /> : null}
        {tab === "graph" ? <Graph id={props.id} /> : null}
        {tab === "details" ? <Details job={job} /> : null}
      </div>
    </>
  );
}

function MemberLine(props: { job: JobView }) {
  const member = memberOf(props.job);
  if (!member) return null;
  return (
    <>
      , member {count(member.index)} of{" "}
      <Link to={pageOf.job(member.id)}>
        {member.kind} {shortId(member.id)}
      </Link>
    </>
  );
}

function Log(props: { job: JobView; executions: readonly ExecutionView[] }) {
  const asked = useSearch().get("try");
  const nameOf = useWorkerNames();
  const { executions } = props;
  const chosen = executions.find((one) => one.execution_id === asked) ?? executions[0];
  if (!chosen)
    return <Empty title="No log yet.">The log appears here when a worker runs the job.</Empty>;
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
                {one.attempt}: {one.status} on {nameOf(one.worker_id)}
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

function Graph(props: { id: string }) {
  const found = useCall(
    "GET /jobs/{job_id}/graph",
    { path: { job_id: props.id } },
    { every: 5_000 },
  );
  if (found.error) return <Trouble error={found.error} />;
  if (!found.data) return <Loading what="graph" />;
  if (found.data.nodes.length < 2)
    return (
      <Empty
        title="No dependencies."
        command={rotaLine("submit", "--after", props.id, "--", "echo", "next")}
      >
        To make a job wait for this one:
      </Empty>
    );
  return <GraphView graph={found.data} current={props.id} />;
}
