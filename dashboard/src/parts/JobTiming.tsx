// One bar from submission to end: what the job waited for, and each execution.

import type { ExecutionView, JobView } from "../api/schema.gen";
import { useNow } from "../lib/clock";
import { jobTiming } from "../lib/jobTiming";
import { SHAPES } from "../lib/status";
import { clockTime, exact, length } from "../lib/time";

const LEAST_SHARE = 0.02;

export function JobTiming(props: { job: JobView; executions: readonly ExecutionView[] }) {
  const now = useNow();
  const parts = jobTiming(props.job, props.executions, now);
  const whole = parts.reduce((sum, one) => sum + (one.to - one.from), 0) || 1;
  // Each period has a minimum width, so that a second stays visible beside a day.
  const shares = parts.map((one) => Math.max(LEAST_SHARE, (one.to - one.from) / whole));
  const sum = shares.reduce((total, one) => total + one, 0) || 1;
  let x = 0;
  return (
    <div className="story">
      <svg viewBox="0 0 1000 22" preserveAspectRatio="none" aria-hidden="true">
        {parts.map((one, at) => {
          const width = ((shares[at] ?? 0) / sum) * 1000;
          const left = x;
          x += width;
          return (
            <rect
              // biome-ignore lint/suspicious/noArrayIndexKey: stretches are in the order of time
              key={at}
              className={`fill tone-${one.tone}`}
              x={left}
              width={Math.max(1, width - 2)}
              height="22"
              rx="3"
            >
              <title>{`${one.label}: ${length((one.to - one.from) / 1000)}`}</title>
            </rect>
          );
        })}
      </svg>
      <ol>
        <li>
          <span className="soft number">{clockTime(props.job.created_at)}</span> submitted{" "}
          <span className="soft">{exact(props.job.created_at)}</span>
        </li>
        {parts.map((one, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: stretches are in the order of time
          <li key={at}>
            <span className="soft number">{clockTime(one.from)}</span>{" "}
            <span className={`tone-${one.tone}`} aria-hidden="true">
              {SHAPES[one.tone]}
            </span>{" "}
            {one.label} <strong className="number">{length((one.to - one.from) / 1000)}</strong>
            {one.open ? <span className="soft"> so far</span> : null}
          </li>
        ))}
        {props.job.finished_at ? (
          <li>
            <span className="soft number">{clockTime(props.job.finished_at)}</span>{" "}
            {props.job.status}
          </li>
        ) : null}
      </ol>
    </div>
  );
}
