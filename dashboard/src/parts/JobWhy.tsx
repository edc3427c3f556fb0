// Why a job is not running: the cause first, the figures behind it, when it may start.

import type { ReactNode } from "react";
import type { JobView } from "../api/schema.gen";
import { useCall } from "../api/use";
import { rotaLine } from "../lib/commands";
import { shortId } from "../lib/format";
import { pageOf } from "../lib/router";
import { Ago, Command, Facts, Link } from "./basics";

export function Why(props: { job: JobView }) {
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
