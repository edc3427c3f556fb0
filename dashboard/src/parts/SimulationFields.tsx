// Settings of a simulation: past jobs or a trace, machines, policies.

import { useCall } from "../api/use";
import { bytes, count } from "../lib/format";
import { setSearch } from "../lib/router";
import {
  MACHINES,
  type Machines,
  type Question,
  REPLAY_WORDS,
  REPLAYS,
  REPLAYS_MAX,
  type ReplayName,
  SPANS,
} from "../lib/simulate";

const SOURCES = { past: "Past jobs", trace: "Trace" } as const;

export function SimulationFields(props: {
  asked: Question;
  file: File | null;
  onFile: (file: File | null) => void;
}) {
  const { asked } = props;
  return (
    <>
      <div className="segments only" role="group" aria-label="Workload">
        {(["past", "trace"] as const).map((one) => (
          <button
            key={one}
            type="button"
            aria-pressed={asked.of === one}
            onClick={() => setSearch({ of: one === "past" ? "" : one })}
          >
            {SOURCES[one]}
          </button>
        ))}
      </div>
      {asked.of === "past" ? <Past asked={asked} /> : <TraceFields {...props} />}
      <Policies asked={asked} />
    </>
  );
}

function Past(props: { asked: Question }) {
  const { asked } = props;
  const workers = useCall("GET /stats", {}, { every: 10_000 });
  const online = workers.data?.workers.online;
  return (
    <>
      <div className="chips only">
        <span className="soft">Submitted in the last</span>
        <div className="segments" role="group" aria-label="Time range">
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
          Workers (empty: {online === undefined ? "the" : `the ${count(online)}`} current ones)
          <input
            type="number"
            title="Copies of the current workers, in turn"
            min={1}
            max={1000}
            value={asked.workers}
            onChange={(event) => setSearch({ workers: event.target.value })}
          />
        </label>
      </div>
    </>
  );
}

function TraceFields(props: {
  asked: Question;
  file: File | null;
  onFile: (file: File | null) => void;
}) {
  const { asked, file } = props;
  return (
    <>
      <div className="fields">
        <label className="field">
          Trace: a log in SWF, a workflow of WfCommons, or what <code>rota history export</code>{" "}
          wrote; .gz or not
          <input type="file" onChange={(event) => props.onFile(event.target.files?.[0] ?? null)} />
          {file ? <span className="soft">{bytes(file.size)}</span> : null}
        </label>
        <label className="field">
          Machines
          <select
            value={asked.machines}
            onChange={(event) => setSearch({ machines: event.target.value })}
          >
            {(Object.keys(MACHINES) as Machines[]).map((one) => (
              <option key={one} value={one}>
                {MACHINES[one]}
              </option>
            ))}
          </select>
        </label>
      </div>
      <div className="fields">
        {asked.machines === "pool" ? (
          <Amount name="cpus" label="Processors" max={1_000_000} value={asked.cpus} />
        ) : null}
        {asked.machines === "alike" ? (
          <>
            <Amount name="workers" label="Workers" max={1000} value={asked.workers} />
            <Amount name="cpu" label="Processors of each" max={1_000_000} value={asked.cpu} />
            <label className="field">
              Memory of each, such as 64GiB (empty: none)
              <input
                value={asked.memory}
                pattern="\s*[0-9.]+\s*[KMGTkmgt]?i?B?\s*"
                onChange={(event) => setSearch({ memory: event.target.value.trim() })}
              />
            </label>
          </>
        ) : null}
      </div>
    </>
  );
}

function Amount(props: { name: string; label: string; max: number; value: string }) {
  return (
    <label className="field">
      {props.label}
      <input
        type="number"
        required
        min={1}
        max={props.max}
        value={props.value}
        onChange={(event) => setSearch({ [props.name]: event.target.value })}
      />
    </label>
  );
}

function Policies(props: { asked: Question }) {
  const { asked } = props;
  const toggle = (name: ReplayName) => {
    const chosen = asked.policies.includes(name)
      ? asked.policies.filter((one) => one !== name)
      : [...asked.policies, name];
    setSearch({ policies: chosen.join(",") || "none" });
  };
  return (
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
  );
}
