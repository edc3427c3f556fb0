// Details of a job: the submission, and its result.

import type { JobView } from "../api/schema.gen";
import { rotaLine } from "../lib/commands";
import { bytes, isEmpty, pretty, quote, shortId, taskLine } from "../lib/format";
import { pageOf } from "../lib/router";
import { exact, length } from "../lib/time";
import { Command, Copy, Facts, Link, Panel } from "./basics";
import { Bundles } from "./JobBundles";

export function Details(props: { job: JobView }) {
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
      <Bundles task={job.task} />
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
              "Expected run time",
              job.expected_runtime === null ? null : length(job.expected_runtime),
            ],
            ["Not before", job.run_at && exact(job.run_at)],
            ["Expires", job.expires_at && exact(job.expires_at)],
            ["Deadline", job.finish_by && exact(job.finish_by)],
            ["May be preempted", job.preemptible ? "yes" : null],
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
      <Panel title="As a command">
        <Command text={rotaLine("show", job.job_id)} />
        <Command
          text={`curl -H "Authorization: Bearer $ROTA_TOKEN" ${quote(`${location.origin}/jobs/${job.job_id}`)}`}
        />
      </Panel>
    </>
  );
}
