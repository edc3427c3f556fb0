// Simulate: what ran, run once more under other policies or with other workers, side by side.

import { type FormEvent, useMemo, useState } from "react";
import { call, type Problem } from "../api/client";
import type { ReplayView, SimulationView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { useCall } from "../api/use";
import { count, percent, plural } from "../lib/format";
import { setSearch, useSearch } from "../lib/router";
import {
  type Question,
  REPLAY_WORDS,
  REPLAYS,
  REPLAYS_MAX,
  type ReplayName,
  readQuestion,
  SPANS,
  simulationAct,
  sliceTimes,
} from "../lib/simulate";
import { exact, length } from "../lib/time";
import { Elsewhere } from "../parts/Acts";
import { Empty, PageHead, Panel, Trouble } from "../parts/basics";
import { Chart, type Series } from "../parts/Chart";
import { type Column, Table } from "../parts/Table";

export function Simulate() {
  const search = useSearch();
  const asked = useMemo(() => readQuestion(search), [search]);
  // One moment for the command, the call and what is shown, moved on by asking.
  const [now, setNow] = useState(() => Date.now());
  const [view, setView] = useState<SimulationView | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const operate = useMay("operate");
  const run = async (event: FormEvent) => {
    event.preventDefault();
    const moment = Date.now();
    const act = simulationAct(asked, moment);
    setNow(moment);
    setBusy(true);
    setProblem(null);
    try {
      setView(await call("POST /simulations", act.asked));
    } catch (error) {
      setProblem(error as Problem);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <PageHead title="Simulate" sub="what ran, once more, under other rules" />
      <Panel label="What to simulate">
        <form onSubmit={(event) => void run(event)}>
          <Fields asked={asked} />
          <div className="dialog-acts">
            <button
              type="submit"
              className="primary"
              disabled={!operate || busy || !asked.policies.length}
            >
              {busy ? "Runs…" : "Simulate"}
            </button>
          </div>
          {operate ? null : <p className="soft">It takes the role operator or admin.</p>}
        </form>
        <Elsewhere act={simulationAct(asked, now)} />
      </Panel>
      <Trouble error={problem} />
      {busy ? (
        <p className="loading" role="status">
          It runs beside the server, for half a minute at most…
        </p>
      ) : null}
      {view ? <Outcome view={view} /> : null}
      {!view && !busy && !problem ? (
        <Empty title="Nothing is changed by trying.">
          Jobs that ran in the time chosen come again as they came, run as long as they ran, and are
          put in order by the scheduler of this server. A policy that is better there is set under
          Queues.
        </Empty>
      ) : null}
    </>
  );
}

function Fields(props: { asked: Question }) {
  const { asked } = props;
  const workers = useCall("GET /stats", {}, { every: 10_000 });
  const online = workers.data?.workers.online;
  const toggle = (name: ReplayName) => {
    const chosen = asked.policies.includes(name)
      ? asked.policies.filter((one) => one !== name)
      : [...asked.policies, name];
    setSearch({ policies: chosen.join(",") || "none" });
  };
  return (
    <>
      <div className="chips only">
        <span className="soft">Submitted in the last</span>
        <div className="segments" role="group" aria-label="How far back">
          {SPANS.map(([name]) => (
            <button
              key={name}
              type="button"
              aria-pressed={!asked.from && asked.span === name}
              onClick={() => setSearch({ span: name, from: "", to: "" })}
            >
              {name}
            </button>
          ))}
        </div>
      </div>
      <div className="fields">
        <label className="field">
          Or from
          <input
            type="datetime-local"
            value={asked.from}
            onChange={(event) => setSearch({ from: event.target.value })}
          />
        </label>
        <label className="field">
          To (empty: now)
          <input
            type="datetime-local"
            value={asked.to}
            onChange={(event) => setSearch({ to: event.target.value })}
          />
        </label>
        <label className="field">
          Workers (empty: {online === undefined ? "those" : `the ${count(online)}`} of now)
          <input
            type="number"
            title="Each is like one of those of now, in turn"
            min={1}
            max={1000}
            value={asked.workers}
            onChange={(event) => setSearch({ workers: event.target.value })}
          />
        </label>
      </div>
      <div className="chips" role="group" aria-label={`Policies, up to ${REPLAYS_MAX}`}>
        {REPLAYS.map((name) => (
          <button
            key={name}
            type="button"
            className="chip"
            aria-pressed={asked.policies.includes(name)}
            disabled={!asked.policies.includes(name) && asked.policies.length >= REPLAYS_MAX}
            onClick={() => toggle(name)}
          >
            {REPLAY_WORDS[name] ?? name}
          </button>
        ))}
        <span className="soft small">up to {REPLAYS_MAX}</span>
      </div>
    </>
  );
}

const COLOURS = ["busy", "good", "wait", "bad"] as const;

function lines(
  view: SimulationView,
  of: "waits" | "uses",
  note: (one: ReplayView) => string,
): Series[] {
  return view.policies.map((one, at) => ({
    label: REPLAY_WORDS[one.policy] ?? one.policy,
    colour: one.policy === "recorded" ? "off" : (COLOURS[at] ?? "accent"),
    values: one[of],
    dash: one.policy === "recorded",
    bridge: true,
    note: note(one),
  }));
}

function Outcome(props: { view: SimulationView }) {
  const { view } = props;
  const times = sliceTimes(view);
  return (
    <>
      <p className="only">
        {plural(view.jobs, "job")} from {exact(view.from)} on, on {plural(view.workers, "worker")}{" "}
        with {Number(view.cpus.toFixed(2))} cpus
        {view.load === null ? "" : `, load ${view.load.toFixed(2)}`}.
        {view.left_out ? ` ${plural(view.left_out, "job")} that fit no worker are left out.` : ""}
        {view.is_cut ? " There were more: these are the newest." : ""}
      </p>
      <Panel title="Side by side">
        <Table label="Policies" items={view.policies} id={(one) => one.policy} columns={COLUMNS} />
      </Panel>
      <div className="pair">
        <Panel title="Mean wait of the jobs that came then">
          <Chart
            label="Mean wait"
            times={times}
            series={lines(view, "waits", (one) => length(one.avg_wait))}
            format={length}
          />
        </Panel>
        <Panel title="Processors in use">
          <Chart
            label="In use"
            times={times}
            series={lines(view, "uses", (one) => percent(one.utilisation))}
            format={percent}
          />
        </Panel>
      </div>
    </>
  );
}

const COLUMNS: readonly Column<ReplayView>[] = [
  {
    head: "Policy",
    cell: (one) => <strong>{REPLAY_WORDS[one.policy] ?? one.policy}</strong>,
  },
  { head: "Mean wait", kind: "number", cell: (one) => length(one.avg_wait) },
  { head: "Median", kind: "number", cell: (one) => length(one.p50_wait) },
  { head: "95 %", kind: "number", cell: (one) => length(one.p95_wait) },
  { head: "Longest", kind: "number", cell: (one) => length(one.max_wait) },
  { head: "Slowdown", kind: "number", cell: (one) => one.slowdown.toFixed(2) },
  { head: "In use", kind: "number", cell: (one) => percent(one.utilisation) },
  { head: "Until all ended", kind: "number", cell: (one) => length(one.makespan) },
  { head: "Preempted", kind: "number", cell: (one) => count(one.preemptions) },
  {
    head: "Most waiting",
    kind: "number",
    cell: (one) => (one.peak_waiting === null ? "–" : count(one.peak_waiting)),
  },
];
