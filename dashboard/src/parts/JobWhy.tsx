// Why a job is not running: the cause with its figures, the estimated start, and what would help.

import type { ReactNode } from "react";
import type {
  CauseView,
  DeadlineView,
  EstimateView,
  JobView,
  ReliefView,
  WhyView,
} from "../api/schema.gen";
import { useCall } from "../api/use";
import { useNow } from "../lib/clock";
import { type Act, rotaLine } from "../lib/commands";
import { amount, shortId } from "../lib/format";
import { pageOf } from "../lib/router";
import { SHAPES } from "../lib/status";
import { exact } from "../lib/time";
import {
  deadlineWords,
  enoughWords,
  figureWords,
  historyWords,
  placeWords,
  startSpan,
  startWords,
} from "../lib/why";
import { AsCommand } from "./Actions";
import { Ago, Facts, Link, Trouble } from "./basics";
import { LinkedText } from "./LinkedText";
import { WorkerName } from "./WorkerName";

/** Members of an array may wait while others run; other running jobs do not wait. */
function waits(job: JobView): boolean {
  if (job.status === "pending" || job.status === "queued") return true;
  return job.status === "running" && (job.array?.queued ?? 0) > 0;
}

export function Why(props: { job: JobView }) {
  const { job } = props;
  const path = { job_id: job.job_id };
  const asked = waits(job);
  const found = useCall(
    "GET /jobs/{job_id}/why",
    { path },
    { every: 2_000, enabled: asked, keep: true },
  );
  const why = found.data;
  if (!asked) return job.deadline ? <Deadline deadline={job.deadline} /> : null;
  if (!why) return <Trouble error={found.error} />;
  const act: Act = {
    call: "GET /jobs/{job_id}/why",
    asked: { path },
    rota: rotaLine("why", job.job_id),
  };
  return (
    <section className="why" aria-labelledby="why-title">
      <h2 id="why-title">
        {job.status === "running" ? "Why not all members run" : "Why it is not running"}
      </h2>
      <p>
        <strong>
          <LinkedText text={why.cause.message} />
        </strong>{" "}
        <span className="soft code">{why.cause.code}</span>
      </p>
      <Figures figures={why.cause.figures} />
      <Others causes={why.others} />
      {job.status === "running" ? null : <Start estimate={why.estimated_start} />}
      <Reliefs reliefs={why.would_help ?? []} />
      <Standing why={why} />
      {why.deadline ? <Deadline deadline={why.deadline} /> : null}
      <AsCommand act={act} />
    </section>
  );
}

function Others(props: { causes: readonly CauseView[] }) {
  if (!props.causes.length) return null;
  return (
    <>
      <h3>Other reasons</h3>
      <ul className="plain-list">
        {props.causes.map((one) => (
          <li key={one.code + one.message}>
            <LinkedText text={one.message} /> <span className="soft code">{one.code}</span>
            <details>
              <summary>Details</summary>
              <Figures figures={one.figures} />
            </details>
          </li>
        ))}
      </ul>
    </>
  );
}

function Start(props: { estimate: EstimateView }) {
  const now = useNow();
  const words = startWords(props.estimate, now);
  const span = startSpan(props.estimate, now);
  return (
    <>
      <h3>When it starts</h3>
      <p>
        {words.when}
        {words.likely && props.estimate.worker_id ? (
          <>
            {" "}
            on <LinkedText text={`worker ${props.estimate.worker_id}`} />
          </>
        ) : null}
        {words.likely ? <>, {words.likely}</> : null}
        {words.how ? <span className="soft block">{words.how}</span> : null}
      </p>
      {span && words.likely ? (
        <svg
          className="interval"
          viewBox="0 0 1000 12"
          preserveAspectRatio="none"
          role="img"
          aria-label={words.likely}
        >
          <rect className="track" y="4" width="1000" height="4" />
          <rect
            className="fill tone-wait"
            x={span.low * 1000}
            width={Math.max(4, (span.high - span.low) * 1000)}
            y="2"
            height="8"
            rx="2"
          />
          <rect className="mark" x={Math.min(996, span.at * 1000)} width="4" height="12" />
        </svg>
      ) : null}
    </>
  );
}

function Reliefs(props: { reliefs: readonly ReliefView[] }) {
  if (!props.reliefs.length) return null;
  return (
    <>
      <h3>What would help</h3>
      <ul className="plain-list">
        {props.reliefs.map((one) => (
          <li key={one.code + one.message}>
            <LinkedText text={one.message} />
            <Due figures={one.figures} />
            <span className={one.enough ? "tone-good" : "soft"}>: {enoughWords(one.enough)}</span>
            <Holders figures={one.figures} />
          </li>
        ))}
      </ul>
    </>
  );
}

function Due(props: { figures: ReliefView["figures"] }) {
  const when = props.figures.at ?? props.figures.until;
  if (typeof when !== "string") return null;
  return (
    <>
      {" "}
      (<Ago time={when} />)
    </>
  );
}

/** The holders of what the job waits for; the sentence only has their number. */
function Holders(props: { figures: ReliefView["figures"] }) {
  const jobs = props.figures.jobs;
  if (!Array.isArray(jobs) || jobs.length < 2) return null;
  return (
    <div className="id-list small">
      {jobs.map((one) => (
        <Link key={String(one)} to={pageOf.job(String(one))}>
          {shortId(String(one))}
        </Link>
      ))}
    </div>
  );
}

function Standing(props: { why: WhyView }) {
  const { position, history = [] } = props.why;
  return (
    <>
      {position ? (
        <p>
          <span className="soft">Queue position:</span> {placeWords(position)}
        </p>
      ) : null}
      {history.length ? (
        <p>
          <span className="soft">Waited so far:</span> {historyWords(history)}
        </p>
      ) : null}
    </>
  );
}

function Deadline(props: { deadline: DeadlineView }) {
  const { deadline } = props;
  const words = deadlineWords(deadline);
  const ended = deadline.verdict === "met" || deadline.verdict === "missed";
  return (
    <p className="deadline">
      <span className="soft">Deadline:</span>{" "}
      <span className={`status tone-${words.tone}`}>
        <span aria-hidden="true" className="shape">
          {SHAPES[words.tone]}
        </span>
        {words.verdict}
      </span>
      , {words.slack}; due {exact(deadline.finish_by)} (<Ago time={deadline.finish_by} />)
      {deadline.expected_finish && !ended ? (
        <>
          , ends about <Ago time={deadline.expected_finish} />
        </>
      ) : null}
    </p>
  );
}

function Figures(props: { figures: Record<string, unknown> }) {
  const entries = Object.entries(props.figures);
  if (!entries.length) return null;
  return <Facts items={entries.map(([name, value]) => [figureWords(name), figure(name, value)])} />;
}

const AN_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const A_TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;

function figure(name: string, value: unknown): ReactNode {
  if (typeof value === "string") {
    if (A_TIME.test(value)) return <Ago time={value} />;
    if (!AN_ID.test(value)) return value;
    if (/worker|nearest/.test(name)) return <WorkerName id={value} />;
    return <Link to={pageOf.job(value)}>{shortId(value)}</Link>;
  }
  if (Array.isArray(value))
    return value.map((one) => <div key={JSON.stringify(one)}>{figure(name, one)}</div>);
  if (value !== null && typeof value === "object") {
    return Object.entries(value)
      .map(([key, one]) => `${key.replaceAll("_", " ")} ${plain(name, one)}`)
      .join(", ");
  }
  return plain(name, value);
}

/** Formats a value by its name: sizes are in bytes. */
function plain(name: string, value: unknown): string {
  if (typeof value === "number") return amount(name, value);
  return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
}
