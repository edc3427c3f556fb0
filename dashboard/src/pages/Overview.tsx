// Overview: throughput, waiting times, workers, servers, and what needs attention.

import { useEffect, useMemo, useRef, useState } from "react";
import type { Problem } from "../api/client";
import type { ConcernView, SampleView } from "../api/schema.gen";
import { useSession } from "../api/session";
import { useCall, useDigest } from "../api/use";
import { amount, brief, count, rateWords } from "../lib/format";
import { pageOf, setSearch, useSearch } from "../lib/router";
import { SHAPES, type Tone } from "../lib/status";
import { length, rough } from "../lib/time";
import {
  Ago,
  Empty,
  Link,
  Loading,
  Meter,
  PageHead,
  Panel,
  Status,
  Trouble,
} from "../parts/basics";
import { Chart } from "../parts/Chart";

const KEPT = 720;

export function Overview() {
  const digest = useDigest();
  const asked = useCall("GET /stats", {}, { every: 2_000, enabled: !digest?.stats });
  const stats = digest?.stats ?? asked.data;
  const window = useSearch().get("window") === "day" ? "day" : "hour";
  const { samples, error } = useSamples(window);
  if (!stats) return asked.error ? <Trouble error={asked.error} /> : <Loading what="statistics" />;
  const waiting = (stats.jobs.pending ?? 0) + (stats.jobs.queued ?? 0);
  const running = (stats.jobs.running ?? 0) + (stats.jobs.cancelling ?? 0);
  const rate = recentRate(samples);
  return (
    <>
      <PageHead title="Overview">
        <div className="segments" role="group" aria-label="Time range">
          {(["hour", "day"] as const).map((one) => (
            <button
              key={one}
              type="button"
              aria-pressed={window === one}
              onClick={() => setSearch({ window: one === "hour" ? "" : one })}
            >
              Last {one}
            </button>
          ))}
        </div>
      </PageHead>
      <dl className="cards">
        <Card name="Waiting" value={brief(waiting)} to={pageOf.jobs("status=pending,queued")} />
        <Card name="Running" value={brief(running)} to={pageOf.jobs("status=running,cancelling")} />
        <Card name="Finished per second" value={rate.done} />
        <Card name="Failing" value={rate.failing} to={pageOf.deadLetters} tone={rate.tone} />
        <Card name="Wait, p50 · p95" value={rate.wait} />
        <Card
          name="Workers online"
          value={`${count(stats.workers.online ?? 0)}${stats.workers.unhealthy ? ` · ${stats.workers.unhealthy} silent` : ""}`}
          to={pageOf.workers}
          tone={stats.workers.unhealthy ? "bad" : undefined}
        />
      </dl>
      <div className="columns">
        <div className="column-wide">
          {error ? (
            <Panel title="Throughput">
              <Trouble error={error} />
            </Panel>
          ) : (
            <Charts samples={samples} />
          )}
        </div>
        <div className="column-slim">
          <Attention submitted={stats.submitted_total} />
          <Fleet resources={stats.resources} />
          <Cluster />
        </div>
      </div>
    </>
  );
}

function Card(props: { name: string; value: string; to?: string; tone?: Tone | undefined }) {
  const value = <span className={props.tone ? `tone-${props.tone}` : ""}>{props.value}</span>;
  return (
    <div className="card">
      <dt>{props.name}</dt>
      <dd>{props.to ? <Link to={props.to}>{value}</Link> : value}</dd>
    </div>
  );
}

/** Reads the history once, and adds the data of each digest. */
function useSamples(window: "hour" | "day"): {
  samples: SampleView[];
  error: Problem | null;
} {
  // The history covers all tenants.
  const whole = useSession().tenant === null;
  const history = useCall(
    "GET /stats/history",
    { query: { window } },
    { every: window === "day" ? 60_000 : 300_000, enabled: whole },
  );
  const digest = useDigest();
  const [added, setAdded] = useState<SampleView[]>([]);
  const last = useRef("");
  useEffect(() => {
    const sample = digest?.sample;
    if (!sample || sample.at === last.current) return;
    last.current = sample.at;
    setAdded((old) => [...old.slice(-KEPT), sample]);
  }, [digest]);
  const samples = useMemo(() => {
    const read = history.data?.items ?? [];
    if (window === "day") return read;
    const end = read.at(-1)?.at ?? "";
    return [...read, ...added.filter((one) => one.at > end)].slice(-KEPT);
  }, [history.data, added, window]);
  return { samples, error: history.error };
}

function recentRate(samples: readonly SampleView[]) {
  const recent = samples.slice(-6);
  const span = recent.reduce((sum, one) => sum + one.span, 0);
  const good = recent.reduce((sum, one) => sum + one.succeeded, 0);
  const bad = recent.reduce((sum, one) => sum + one.failed, 0);
  const other = recent.reduce((sum, one) => sum + one.other, 0);
  const waits = recent.findLast((one) => one.wait_p50 !== null);
  const share = good + bad ? bad / (good + bad) : 0;
  const tone: Tone | undefined = share > 0.05 ? "bad" : undefined;
  const each = span ? (good + bad + other) / span : 0;
  return {
    done: rateWords(span ? each : null),
    failing: good + bad ? `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %` : "–",
    wait: waits ? bothWaits(rough(waits.wait_p50), rough(waits.wait_p95)) : "–",
    tone,
  };
}

/** Notification once where there is no difference to see. */
const bothWaits = (half: string, most: string): string =>
  half === most ? half : `${half} · ${most}`;

function Charts(props: { samples: readonly SampleView[] }) {
  const { samples } = props;
  const times = samples.map((one) => Date.parse(one.at) / 1000);
  const perSecond = (pick: (one: SampleView) => number) =>
    samples.map((one) => (one.span ? pick(one) / one.span : null));
  if (samples.length < 2)
    return (
      <Panel title="Throughput">
        <Empty title="No data yet.">
          The first lines appear within ten seconds. The history is kept since this leader began;
          for longer views let Prometheus read <code>/metrics</code>.
        </Empty>
      </Panel>
    );
  return (
    <>
      <Panel title="Throughput (jobs per second)">
        <Chart
          label="Jobs per second"
          times={times}
          format={(value) => (value < 10 ? String(Number(value.toFixed(1))) : brief(value))}
          series={[
            {
              label: "submitted",
              colour: "off",
              values: perSecond((one) => one.submitted),
              dash: true,
            },
            {
              label: "succeeded",
              colour: "good",
              values: perSecond((one) => one.succeeded),
              fill: true,
            },
            { label: "failed", colour: "bad", values: perSecond((one) => one.failed) },
          ]}
        />
      </Panel>
      <div className="pair">
        <Panel title="Waiting and running">
          <Chart
            label="Jobs"
            times={times}
            format={brief}
            series={[
              {
                label: "waiting",
                colour: "wait",
                values: samples.map((one) => one.waiting),
                fill: true,
              },
              { label: "running", colour: "busy", values: samples.map((one) => one.running) },
            ]}
          />
        </Panel>
        <Panel title="Waiting time">
          <Chart
            label="Wait"
            times={times}
            format={(value) => length(value)}
            series={[
              { label: "p50", colour: "busy", values: samples.map((one) => one.wait_p50) },
              {
                label: "p95",
                colour: "wait",
                values: samples.map((one) => one.wait_p95),
                dash: true,
              },
            ]}
          />
        </Panel>
      </div>
      <Utilisation samples={samples} times={times} />
    </>
  );
}

const COLOURS = ["busy", "wait", "good", "off"] as const;

function Utilisation(props: { samples: readonly SampleView[]; times: readonly number[] }) {
  const kinds = [...new Set(props.samples.flatMap((one) => Object.keys(one.resources)))].slice(
    0,
    4,
  );
  if (!kinds.length) return null;
  return (
    <Panel title="Resources in use">
      <Chart
        label="Share in use"
        times={props.times}
        format={(value) => `${Math.round(value)} %`}
        height={120}
        series={kinds.map((kind, at) => ({
          label: kind,
          colour: COLOURS[at % COLOURS.length] ?? "busy",
          dash: at % 2 === 1,
          values: props.samples.map((one) => {
            const now = one.resources[kind];
            return now?.capacity ? (100 * (now.used ?? 0)) / now.capacity : null;
          }),
        }))}
      />
    </Panel>
  );
}

const WHERE: Record<ConcernView["kind"], (one: ConcernView) => string> = {
  cluster: () => pageOf.overview,
  alert: (one) => pageOf.alert(one.about),
  worker: (one) => pageOf.worker(one.about),
  failing: (one) => `${pageOf.deadLetters}?group=${one.about}`,
  queue: () => pageOf.queues,
  schedule: (one) => pageOf.schedule(one.about),
};

function Attention(props: { submitted: number }) {
  const found = useCall("GET /attention", {}, { every: 10_000 });
  const items = found.data?.items ?? [];
  return (
    <Panel title="Needs attention" label="Needs attention">
      <Trouble error={found.error} />
      {items.length ? (
        <ul className="concerns">
          {items.map((one, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the list is read whole each time
            <li key={at}>
              <Link to={WHERE[one.kind](one)}>
                <span className="spread">
                  <span>
                    <span className="tone-bad" aria-hidden="true">
                      {SHAPES.bad}
                    </span>{" "}
                    <strong>{one.name}</strong>{" "}
                    {(one.count ?? 1) > 1 ? (
                      <span className="count">{count(one.count ?? 1)}×</span>
                    ) : null}
                  </span>
                  <span className="soft small">{one.since ? <Ago time={one.since} /> : null}</span>
                </span>
                <span className="concern-text">
                  <span className="soft">{one.kind}</span> {one.message}
                </span>
              </Link>
            </li>
          ))}
        </ul>
      ) : found.data ? (
        props.submitted ? (
          <p className="calm">
            <span className="tone-good" aria-hidden="true">
              {SHAPES.good}
            </span>{" "}
            Nothing needs attention.
          </p>
        ) : (
          <Empty
            title="No job has been submitted yet."
            command="rota submit --follow -- echo hello"
          >
            Run this command on the server's machine. The job appears here at once.
          </Empty>
        )
      ) : null}
    </Panel>
  );
}

function Fleet(props: { resources: Record<string, Record<string, number>> }) {
  const kinds = Object.entries(props.resources).filter(([, one]) => (one.capacity ?? 0) > 0);
  return (
    <Panel title="Fleet">
      {kinds.length ? (
        kinds.map(([kind, one]) => (
          <Meter
            key={kind}
            label={kind}
            used={one.used ?? 0}
            capacity={one.capacity ?? 0}
            text={`${amount(kind, one.used ?? 0)} / ${amount(kind, one.capacity ?? 0)}`}
          />
        ))
      ) : (
        <Empty title="No workers." command="rota worker --server URL">
          Jobs wait until one registers.
        </Empty>
      )}
    </Panel>
  );
}

function Cluster() {
  const found = useCall("GET /cluster", {}, { every: 10_000 });
  const cluster = found.data;
  if (!cluster) return null;
  return (
    <Panel title="Servers">
      <ul className="plain-list">
        {cluster.nodes.map((node) => (
          <li key={node.node} className="spread">
            <span>
              <Status
                of={node.status === "up" ? (node.role === "leader" ? "leader" : "up") : "silent"}
              />{" "}
              {node.node}
            </span>
            <span className="soft small">
              {node.role === "leader"
                ? `epoch ${cluster.epoch}`
                : `${length(node.lag.seconds)} behind`}
            </span>
          </li>
        ))}
      </ul>
      <p className="soft small">durability: {cluster.durability}</p>
    </Panel>
  );
}
