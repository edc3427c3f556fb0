// Dialog to test or send an event.

import { type FormEvent, useState } from "react";
import { call, type Problem } from "../api/client";
import type { Json, TrialView, TriggerView } from "../api/schema.gen";
import { type Act, rotaLine } from "../lib/commands";
import { pretty } from "../lib/format";
import { ActionButton, AsCommand } from "./Actions";
import { Status, Trouble } from "./basics";
import { Dialog } from "./Dialog";

const SOURCE = "dashboard";

/** An event type that the trigger accepts. */
export const typeFor = (trigger: TriggerView): string => trigger.event.replace(/\*+$/, "made");

export function EventDialog(props: { trigger?: TriggerView; onClose: () => void }) {
  const [type, setType] = useState(props.trigger ? typeFor(props.trigger) : "object.uploaded");
  const [data, setData] = useState('{"path": "/in/a.csv", "size": 1200}');
  // The same id twice has no effect, so each event gets a new one.
  const [id, setId] = useState(newId);
  const [found, setFound] = useState<TrialView[] | null>(null);
  const [problem, setProblem] = useState<Problem | Error | null>(null);
  const read = readJson(data);
  const event = { id, source: SOURCE, type, data: read.value };
  const trial = trialOf(event, props.trigger);
  const test = async (submitted: FormEvent) => {
    submitted.preventDefault();
    if (read.error) return;
    try {
      const answer = (await call(trial.call, trial.asked)) as { items: TrialView[] };
      setFound(answer.items);
      setProblem(null);
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  return (
    <Dialog title="Test an event" onClose={props.onClose}>
      <form onSubmit={(submitted) => void test(submitted)}>
        <p>
          A test says what {props.trigger ? props.trigger.name : "all triggers"} would do with it,
          and nothing happens. Sending is in earnest.
        </p>
        <label className="field">
          Type
          <input value={type} required onChange={(e) => setType(e.target.value)} />
        </label>
        <label className="field">
          Data, as JSON
          <textarea
            className="code"
            rows={4}
            value={data}
            onChange={(e) => setData(e.target.value)}
            spellCheck={false}
          />
        </label>
        <Trouble error={read.error ?? problem} />
        {found?.map((one) => (
          <div key={one.name} className="trial">
            <Status of={one.outcome} /> <strong>{one.name}</strong> {one.message}
            {one.job ? <pre className="json">{pretty(one.job)}</pre> : null}
          </div>
        ))}
        {found && !found.length ? (
          <p className="soft">No trigger accepts events of this type.</p>
        ) : null}
        <AsCommand act={trial} />
        <div className="dialog-acts">
          {read.error ? null : (
            <ActionButton
              label="Send event"
              needs="submit"
              act={{
                call: "POST /events",
                asked: { body: event },
                rota: rotaLine("events", "send", type, data, "--source", SOURCE, "--id", id),
              }}
              done="Event sent."
              onDone={() => setId(newId())}
            />
          )}
          <button type="submit" className="primary">
            Test
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function trialOf(
  event: { type: string; data: Json } & Record<string, Json>,
  only?: TriggerView,
): Act {
  const told = JSON.stringify({ type: event.type, source: SOURCE, data: event.data });
  return {
    call: "POST /triggers/preview",
    asked: { body: { event, ...(only ? { trigger_id: only.trigger_id } : {}) } },
    rota: rotaLine("triggers", "test", told, ...(only ? ["--only", only.name] : [])),
  };
}

const newId = (): string => `by-hand-${Date.now().toString(36)}`;

function readJson(text: string): { value: Json; error: Error | null } {
  try {
    return { value: JSON.parse(text) as Json, error: null };
  } catch (error) {
    return { value: null, error: new Error(`The data is not JSON: ${(error as Error).message}`) };
  }
}
