// Simulate: replays past jobs or a trace under other policies or with other workers, side by side.

import { type FormEvent, useMemo, useState } from "react";
import { call, type Problem } from "../api/client";
import type { ReplayView, SimulationView } from "../api/schema.gen";
import { useMay } from "../api/session";
import type { Act } from "../lib/commands";
import { count, percent, plural } from "../lib/format";
import { pageOf, useSearch } from "../lib/router";
import {
  type Question,
  REPLAY_WORDS,
  readQuestion,
  simulationAct,
  sliceTimes,
  traceAct,
} from "../lib/simulate";
import { exact, length } from "../lib/time";
import { AsCommand } from "../parts/Actions";
import { Empty, Link, PageHead, Panel, Trouble } from "../parts/basics";
import { Chart, type Series } from "../parts/Chart";
import { SimulationFields } from "../parts/SimulationFields";
import { type Column, Table } from "../parts/Table";

export function Simulate() {
  const [file, setFile] = useState<File | null>(null);
  const search = useSearch();
  const asked = useMemo(() => readQuestion(search), [search]);
  // One instant for the command, the call and the charts; each run sets a new one.
  const [now, setNow] = useState(() => Date.now());
  const [view, setView] = useState<(SimulationView & { title: string }) | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const operate = useMay("operate");
  const run = async (event: FormEvent) => {
    event.preventDefault();
    const moment = Date.now();
    const act = actOf(asked, file, moment);
    if (!act) return;
    setNow(moment);
    setBusy(true);
    setProblem(null);
    try {
      const found = (await call(act.call, act.asked)) as SimulationView;
      setView({ ...found, title: act.asked.file?.name ?? "" });
    } catch (error) {
      setProblem(error as Problem);
    } finally {
      setBusy(false);
    }
  };
  const act = actOf(asked, file, now);
  return (
    <>
      <PageHead title="Simulate" sub="past jobs or a trace, with other policies or workers" />
      <Panel label="Settings of the simulation">
        <form onSubmit={(event) => void run(event)}>
          <SimulationFields asked={asked} file={file} onFile={setFile} />
          <div className="dialog-acts">
            <button
              type="submit"
              className="primary"
              disabled={!operate || busy || !act || !asked.policies.length}
            >
              {busy ? "Runs…" : "Simulate"}
            </button>
          </div>
          {operate ? null : <p className="soft">This needs the role operator or admin.</p>}
        </form>
        {act ? <AsCommand act={act} /> : null}
      </Panel>
      <Trouble error={problem} />
      {busy ? (
        <p className="loading" role="status">
          Running, for half a minute at most…
        </p>
      ) : null}
      {view ? <Outcome view={view} /> : null}
      {!view && !busy && !problem ? (
        <Empty title="A simulation changes nothing.">
          Jobs that ran in the time chosen, or those of a trace, come again as they came, run as
          long as they ran, and are put in order by the scheduler of this server. A policy that is
          better there is set under <Link to={pageOf.queues}>Queues</Link>.
        </Empty>
      ) : null}
    </>
  );
}

function actOf(asked: Question, file: File | null, now: number): Act | null {
  if (asked.of === "past") return simulationAct(asked, now);
  return file && traceAct(asked, file);
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

function Outcome(props: { view: SimulationView & { title: string } }) {
  const { view } = props;
  const times = sliceTimes(view);
  return (
    <>
      <p className="only">
        {plural(view.jobs, "job")}
        {view.title ? ` of ${view.title}` : ""}
        {view.from ? ` from ${exact(view.from)} on` : ""}, on {plural(view.workers, "worker")} with{" "}
        {Number(view.cpus.toFixed(2))} cpus
        {view.load === null ? "" : `, load ${view.load.toFixed(2)}`}.
        {view.left_out
          ? ` Left out because they never ran or fit on no worker: ${count(view.left_out)}.`
          : ""}
        {view.is_cut
          ? ` Only the ${view.title ? "first" : "newest"} jobs were used; there are more.`
          : ""}
      </p>
      <Panel title="Side by side">
        <Table label="Policies" items={view.policies} id={(one) => one.policy} columns={COLUMNS} />
      </Panel>
      <div className="pair">
        <Panel title="Mean waiting time by arrival">
          <Chart
            label="Mean wait"
            elapsed={!view.from}
            times={times}
            series={lines(view, "waits", (one) => length(one.avg_wait))}
            format={length}
          />
        </Panel>
        <Panel title="Processors in use">
          <Chart
            label="In use"
            elapsed={!view.from}
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
  { head: "Makespan", kind: "number", cell: (one) => length(one.makespan) },
  { head: "Preempted", kind: "number", cell: (one) => count(one.preemptions) },
  {
    head: "Most waiting jobs",
    kind: "number",
    cell: (one) => (one.peak_waiting === null ? "–" : count(one.peak_waiting)),
  },
];
