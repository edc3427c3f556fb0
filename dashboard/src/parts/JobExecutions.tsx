// The executions of a job: worker, run time, resources used and requested, output files.

import { addressOf } from "../api/client";
import type { ArtifactView, ExecutionView, JobView } from "../api/schema.gen";
import { fetchLine, rotaLine } from "../lib/commands";
import { amount, bytes, errorLine } from "../lib/format";
import { exact, length } from "../lib/time";
import { Command, Copy, Empty, Facts, Link, Meter, Panel, Status, Took } from "./basics";
import { Checksum } from "./JobBundles";
import { WorkerName } from "./WorkerName";

export function Executions(props: { job: JobView; executions: readonly ExecutionView[] }) {
  if (!props.executions.length) return <Empty title="No executions yet." />;
  return (
    <>
      {props.executions.map((one, at) => (
        <Panel
          key={one.execution_id}
          title={
            <>
              Attempt {one.attempt} <Status of={one.status} note={one.reason} />
            </>
          }
          acts={<Link to={`?try=${one.execution_id}`}>Log</Link>}
        >
          <Facts
            items={[
              ["Worker", <WorkerName key="w" id={one.worker_id} />],
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
          <Artifacts execution={one} job={props.job} last={at === 0} />
        </Panel>
      ))}
    </>
  );
}

const SHOWN_AS: Record<string, (value: number) => string> = {
  cpu_seconds: (value) => length(value),
  memory_peak: bytes,
};

/** Used resources; for memory also the limit, which may be higher than in the attempt before. */
function Usage(props: { execution: ExecutionView; job: JobView }) {
  const { usage, memory = 0 } = props.execution;
  const used = usage !== null && typeof usage === "object" && !Array.isArray(usage) ? usage : {};
  const peak = typeof used.memory_peak === "number" ? used.memory_peak : null;
  const asked = props.job.requirements;
  return (
    <>
      <Facts
        items={[
          ...Object.entries(used).map(
            ([name, value]) =>
              [
                name.replace(/_seconds$/, "_time").replaceAll("_", " "),
                typeof value === "number"
                  ? (SHOWN_AS[name] ?? ((one: number) => String(Number(one.toFixed(3)))))(value)
                  : JSON.stringify(value),
              ] as const,
          ),
          [
            "requested",
            `${amount("cpu", asked.cpu)} cpu${memory ? `, ${bytes(memory)} memory` : ""}`,
          ],
          [
            "memory of this attempt",
            memory && memory !== asked.memory
              ? `${bytes(memory)}, where the job now asks ${asked.memory ? bytes(asked.memory) : "none"}`
              : null,
          ],
        ]}
      />
      {peak !== null && memory ? (
        <Meter
          label="memory"
          used={peak}
          capacity={memory}
          text={`${bytes(peak)} of ${bytes(memory)}`}
        />
      ) : null}
    </>
  );
}

/** Output files of an execution; those of the last one also by a `rota` command. */
function Artifacts(props: { execution: ExecutionView; job: JobView; last: boolean }) {
  const files = props.execution.artifacts as unknown as readonly ArtifactView[];
  if (!files.length) return null;
  const address = (name: string) =>
    addressOf("GET /executions/{execution_id}/artifacts/{name}", {
      path: { execution_id: props.execution.execution_id, name },
    });
  return (
    <>
      <h3>Output files</h3>
      <ul className="plain-list">
        {files.map((file) => (
          <li key={file.name}>
            <a href={address(file.name)} download>
              {file.name}
            </a>{" "}
            <span className="soft">{bytes(file.size)}</span> <Checksum sha256={file.sha256} />
            <Copy text={fetchLine(location.origin + address(file.name))} label="copy curl" />
          </li>
        ))}
      </ul>
      {props.last ? <Command text={rotaLine("artifacts", "get", props.job.job_id)} /> : null}
    </>
  );
}
