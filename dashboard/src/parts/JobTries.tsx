// Every try of a job: where, how long, what it used against what it asked for, what it left.

import type { ExecutionView, JobView } from "../api/schema.gen";
import { amount, bytes, errorLine, shortId } from "../lib/format";
import { pageOf } from "../lib/router";
import { exact, length } from "../lib/time";
import { Empty, Facts, Link, Panel, Status, Took } from "./basics";

export function Tries(props: { job: JobView; executions: readonly ExecutionView[] }) {
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
