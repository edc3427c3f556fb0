// Backfill of a schedule: shows what would run, then runs it.

import { useEffect, useState } from "react";
import { call, type Problem } from "../api/client";
import { line } from "../api/live";
import type { BackfillAnswer, ScheduleView } from "../api/schema.gen";
import { rotaLine } from "../lib/commands";
import { plural } from "../lib/format";
import { exact } from "../lib/time";
import { CommandLines, useNotify } from "./Actions";
import { Trouble } from "./basics";
import { Dialog } from "./Dialog";

export function BackfillDialog(props: { schedule: ScheduleView; onClose: () => void }) {
  const say = useNotify();
  const [from, setFrom] = useState(() => localText(Date.now() - 86_400_000));
  const [to, setTo] = useState(() => localText(Date.now()));
  const [parallel, setParallel] = useState(1);
  const [found, setFound] = useState<BackfillAnswer | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const path = { schedule_id: props.schedule.schedule_id };
  const body = { from: iso(from), to: iso(to), max_parallel: parallel };
  const text = JSON.stringify(body);

  // biome-ignore lint/correctness/useExhaustiveDependencies: `text` stands for the body
  useEffect(() => {
    let gone = false;
    setProblem(null);
    call("POST /schedules/{schedule_id}/backfill", { path, body: { ...body, dry_run: true } })
      .then((answer) => {
        if (!gone) setFound(answer);
      })
      .catch((error: unknown) => {
        if (!gone) setProblem(error as Problem);
      });
    return () => {
      gone = true;
    };
  }, [text]);

  const run = async () => {
    try {
      const answer = await call("POST /schedules/{schedule_id}/backfill", { path, body });
      say(`${plural(answer.count, "run")} under way.`);
      props.onClose();
      line.readAll();
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  return (
    <Dialog title={`Backfill ${props.schedule.name}`} onClose={props.onClose}>
      <div className="fields">
        <label className="field">
          From
          <input type="datetime-local" value={from} onChange={(e) => setFrom(e.target.value)} />
        </label>
        <label className="field">
          To
          <input type="datetime-local" value={to} onChange={(e) => setTo(e.target.value)} />
        </label>
        <label className="field">
          At once
          <input
            type="number"
            min={1}
            value={parallel}
            onChange={(e) => setParallel(Math.max(1, Number(e.target.value)))}
          />
        </label>
      </div>
      {found ? (
        <>
          <p>
            <strong>{plural(found.count, "run")}</strong> would be created, with lower priority;{" "}
            {plural(found.already, "instant")} of the range {found.already === 1 ? "has" : "have"} a
            job already.
          </p>
          <ol className="ahead">
            {found.items.slice(0, 6).map((one) => (
              <li key={one.at}>{exact(one.at)}</li>
            ))}
            {found.count > 6 ? <li className="soft">…</li> : null}
          </ol>
        </>
      ) : null}
      <Trouble error={problem} />
      <CommandLines
        act={{
          call: "POST /schedules/{schedule_id}/backfill",
          asked: { path, body },
          rota: rotaLine(
            "schedules",
            "backfill",
            props.schedule.schedule_id,
            "--from",
            body.from,
            "--to",
            body.to,
            "--max-parallel",
            String(parallel),
          ),
        }}
      />
      <div className="dialog-acts">
        <button type="button" onClick={props.onClose}>
          Close
        </button>
        <button
          type="button"
          className="primary"
          disabled={!found?.count}
          onClick={() => void run()}
        >
          Start backfill
        </button>
      </div>
    </Dialog>
  );
}

function localText(time: number): string {
  const shifted = new Date(time - new Date(time).getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 16);
}

function iso(local: string): string {
  const time = new Date(local);
  return Number.isNaN(time.getTime()) ? new Date().toISOString() : time.toISOString();
}
