// Form for a schedule, with a preview in words and the next instants.

import { type FormEvent, useDeferredValue, useState } from "react";
import { call, type Problem } from "../api/client";
import { line } from "../api/live";
import type { Json, ScheduleView } from "../api/schema.gen";
import { useCall } from "../api/use";
import { type Act, rotaLine } from "../lib/commands";
import { cronWords } from "../lib/cronText";
import { quote, taskLine } from "../lib/format";
import { go, pageOf } from "../lib/router";
import { CommandLines, useNotify } from "./Actions";
import { Trouble } from "./basics";
import { Dialog, DialogEnd } from "./Dialog";

export function ScheduleForm(props: { schedule?: ScheduleView; onClose: () => void }) {
  const known = props.schedule;
  const say = useNotify();
  const [name, setName] = useState(known?.name ?? "");
  const [kind, setKind] = useState<"cron" | "interval">(known?.interval ? "interval" : "cron");
  const [cron, setCron] = useState(known?.cron ?? "0 9 * * MON-FRI");
  const [interval, setInterval] = useState(known?.interval ? `${known.interval}s` : "15m");
  const [zone, setZone] = useState(
    known?.timezone ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
  );
  const [catchUp, setCatchUp] = useState<string>(known?.catch_up ?? "latest");
  const [overlap, setOverlap] = useState<string>(known?.overlap ?? "allow");
  const [words, setWords] = useState(known ? taskLine(known.job.task ?? null) : "echo hello");
  const [problem, setProblem] = useState<Problem | null>(null);

  const time: Record<string, string> = kind === "cron" ? { cron } : { interval };
  const timing = { ...time, timezone: zone };
  const act = actOf(known, name, words, { ...timing, catch_up: catchUp, overlap });
  const save = async (event: FormEvent) => {
    event.preventDefault();
    try {
      const made = (await call(act.call, act.asked)) as unknown as ScheduleView;
      say(known ? "Schedule changed." : "Schedule created.");
      props.onClose();
      line.readAll();
      if (!known) go(pageOf.schedule(made.schedule_id));
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  return (
    <Dialog title={known ? `Edit ${known.name}` : "New schedule"} onClose={props.onClose} wide>
      <form onSubmit={(event) => void save(event)}>
        <div className="fields">
          <label className="field">
            Name
            <input
              value={name}
              required
              disabled={Boolean(known)}
              onChange={(e) => setName(e.target.value)}
            />
          </label>
          <label className="field">
            Command
            <input
              value={words}
              required
              disabled={Boolean(known)}
              onChange={(e) => setWords(e.target.value)}
              spellCheck={false}
            />
          </label>
          <label className="field">
            Runs by
            <select value={kind} onChange={(e) => setKind(e.target.value as "cron" | "interval")}>
              <option value="cron">cron expression</option>
              <option value="interval">interval</option>
            </select>
          </label>
          {kind === "cron" ? (
            <label className="field">
              Cron
              <input
                className="code"
                value={cron}
                required
                onChange={(e) => setCron(e.target.value)}
                spellCheck={false}
              />
            </label>
          ) : (
            <label className="field">
              Every
              <input value={interval} required onChange={(e) => setInterval(e.target.value)} />
            </label>
          )}
          <label className="field">
            Time zone
            <input value={zone} required list="zones" onChange={(e) => setZone(e.target.value)} />
          </label>
          <label className="field">
            Missed runs
            <select value={catchUp} onChange={(e) => setCatchUp(e.target.value)}>
              <option value="none">skip all</option>
              <option value="latest">run only the latest</option>
              <option value="all">run all</option>
            </select>
          </label>
          <label className="field">
            If the last run has not ended
            <select value={overlap} onChange={(e) => setOverlap(e.target.value)}>
              <option value="allow">run in parallel</option>
              <option value="skip">skip</option>
              <option value="queue">wait for it</option>
              <option value="replace">replace it</option>
            </select>
          </label>
        </div>
        <datalist id="zones">
          {Intl.supportedValuesOf("timeZone").map((one) => (
            <option key={one}>{one}</option>
          ))}
        </datalist>
        <Ahead rules={timing} />
        <Trouble error={problem} />
        <CommandLines act={act} />
        <DialogEnd onClose={props.onClose}>{known ? "Save" : "Create schedule"}</DialogEnd>
      </form>
    </Dialog>
  );
}

/** Fields with another name on the command line. */
const OPTIONS: Record<string, string> = { timezone: "tz", interval: "every" };

function actOf(
  known: ScheduleView | undefined,
  name: string,
  words: string,
  rules: Record<string, string>,
): Act {
  const flags = Object.entries(rules).flatMap(([key, value]) => [
    `--${OPTIONS[key] ?? key.replaceAll("_", "-")}`,
    value,
  ]);
  if (known) {
    const cleared = "cron" in rules ? { interval: null } : { cron: null };
    return {
      call: "PATCH /schedules/{schedule_id}",
      asked: { path: { schedule_id: known.schedule_id }, body: { ...cleared, ...rules } },
      rota: rotaLine("schedules", "update", known.schedule_id, ...flags),
    };
  }
  const argv = splitWords(words);
  const job: Json = { name: name || "job", task: { kind: "command", argv } };
  return {
    call: "POST /schedules",
    asked: { body: { name, ...rules, job } },
    rota: `${rotaLine("schedules", "create", name || "NAME", ...flags)} -- ${argv.map(quote).join(" ")}`,
  };
}

/** Splits a line into words as a shell does, with quotes. */
export function splitWords(line: string): string[] {
  const found = line.match(/"(?:\\.|[^"\\])*"|'[^']*'|[^\s"']+/g) ?? [];
  return found.map((word) =>
    word.startsWith("'")
      ? word.slice(1, -1)
      : word.startsWith('"')
        ? word.slice(1, -1).replace(/\\(.)/g, "$1")
        : word,
  );
}

/** The timetable in words, and the next instants from the server. */
function Ahead(props: { rules: Record<string, string> }) {
  const rules = useDeferredValue(props.rules);
  const found = useCall(
    "POST /schedules/preview",
    { query: { count: 6 }, body: rules },
    { keep: true },
  );
  const words = rules.cron ? cronWords(rules.cron, rules.timezone) : null;
  return (
    <div className="ahead" role="status">
      {words ? <p className="ahead-words">{words}</p> : null}
      {found.error ? (
        <Trouble error={found.error} />
      ) : (
        <ol>
          {(found.data?.items ?? []).map((one) => (
            <li key={one.at}>
              <span className="number">{one.local.replace("T", " ")}</span>{" "}
              {one.note ? <span className="tone-bad">⚑ {one.note}</span> : null}
            </li>
          ))}
        </ol>
      )}
    </div>
  );
}
