// Form for a rule, with a preview: what the rule would find now, and which channels it would notify.

import { type FormEvent, useDeferredValue, useState } from "react";
import { call, type Problem } from "../api/client";
import { line } from "../api/live";
import type { AlertView } from "../api/schema.gen";
import { useCall, usePages } from "../api/use";
import {
  BY_QUEUE,
  CONDITIONS,
  type Draft,
  draftOf,
  SEVERITIES,
  setAct,
  specOf,
} from "../lib/alerts";
import { go, pageOf } from "../lib/router";
import { CommandLines, useNotify } from "./Actions";
import { Trouble } from "./basics";
import { Dialog, DialogEnd } from "./Dialog";

export function AlertForm(props: {
  rule?: AlertView;
  /** Existing rules, including built-in ones: a new rule starts with their values. */
  rules: readonly AlertView[];
  onClose: () => void;
}) {
  const known = props.rule;
  const say = useNotify();
  const usual = (condition: string) => props.rules.find((one) => one.name === condition);
  const first = known ?? usual("wait") ?? props.rules[0];
  const [name, setName] = useState(known?.name ?? "");
  const [draft, setDraft] = useState<Draft | null>(first ? draftOf(first) : null);
  const [problem, setProblem] = useState<Problem | null>(null);
  if (!draft) return null;
  const set = (changes: Partial<Draft>) => setDraft({ ...draft, ...changes });
  const watches = (condition: AlertView["condition"]) => {
    const like = usual(condition);
    set(like ? { ...draftOf(like), condition, channels: draft.channels } : { condition });
  };
  const act = setAct(name, draft);
  const save = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await call(act.call, act.asked);
      say(known ? "Rule changed." : "Rule created.");
      props.onClose();
      line.readAll();
      if (!known) go(pageOf.alert(name));
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  const unit = usual(draft.condition)?.unit ?? "";
  const text = (key: "threshold" | "window" | "for" | "at_least" | "repeat", label: string) => (
    <label className="field">
      {label}
      <input
        value={draft[key]}
        required={key !== "repeat"}
        inputMode={key === "threshold" || key === "at_least" ? "decimal" : "text"}
        onChange={(event) => set({ [key]: event.target.value })}
        spellCheck={false}
      />
    </label>
  );
  return (
    <Dialog title={known ? `Edit ${known.name}` : "New rule"} onClose={props.onClose} wide>
      <form onSubmit={(event) => void save(event)}>
        <div className="fields">
          <label className="field">
            Name
            <input
              value={name}
              required
              disabled={Boolean(known)}
              onChange={(event) => setName(event.target.value)}
              spellCheck={false}
            />
          </label>
          <label className="field">
            Condition
            <select
              value={draft.condition}
              disabled={known?.builtin ?? false}
              onChange={(event) => watches(event.target.value as AlertView["condition"])}
            >
              {CONDITIONS.map((one) => (
                <option key={one} value={one}>
                  {one.replaceAll("_", " ")}
                </option>
              ))}
            </select>
          </label>
          {text("threshold", `From, in ${unit}`)}
          {text("window", "Window")}
          {text("for", "Fires after")}
          {text("at_least", "Minimum number of samples")}
          <label className="field">
            Severity
            <select
              value={draft.severity}
              onChange={(event) => set({ severity: event.target.value as Draft["severity"] })}
            >
              {SEVERITIES.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
          {BY_QUEUE[draft.condition] ? (
            <label className="field">
              Queue (empty: all)
              <input value={draft.queue} onChange={(event) => set({ queue: event.target.value })} />
            </label>
          ) : null}
          {text("repeat", "Repeat every (empty: once)")}
        </div>
        <p className="soft">{usual(draft.condition)?.meaning}</p>
        <Tells draft={draft} set={set} />
        <label className="tick-line">
          <input
            type="checkbox"
            checked={draft.enabled}
            onChange={(event) => set({ enabled: event.target.checked })}
          />{" "}
          Enabled
        </label>
        <Trial name={name || "new"} draft={draft} />
        <Trouble error={problem} />
        <CommandLines act={act} />
        <DialogEnd onClose={props.onClose}>{known ? "Save rule" : "Create rule"}</DialogEnd>
      </form>
    </Dialog>
  );
}

function Tells(props: { draft: Draft; set: (changes: Partial<Draft>) => void }) {
  const channels = usePages("GET /alert-channels", { query: { limit: 100 } });
  const chosen = props.draft.channels;
  const toggle = (name: string, on: boolean) =>
    props.set({
      channels: on ? [...(chosen ?? []), name] : (chosen ?? []).filter((one) => one !== name),
    });
  return (
    <fieldset className="ticks">
      <legend>Tells</legend>
      <label className="tick-line">
        <input
          type="checkbox"
          checked={chosen === null}
          onChange={(event) => props.set({ channels: event.target.checked ? null : [] })}
        />{" "}
        everybody
      </label>
      {chosen === null
        ? null
        : channels.items.map((one) => (
            <label className="tick-line" key={one.name}>
              <input
                type="checkbox"
                checked={chosen.includes(one.name)}
                onChange={(event) => toggle(one.name, event.target.checked)}
              />{" "}
              {one.name}
            </label>
          ))}
    </fieldset>
  );
}

/** A preview of the rule; changes nothing. */
function Trial(props: { name: string; draft: Draft }) {
  const spec = useDeferredValue(props.draft);
  const whole = [spec.threshold, spec.at_least].every((one) => one !== "" && !Number.isNaN(+one));
  const tried = useCall(
    "POST /alerts/{name}/test",
    { path: { name: props.name }, body: specOf(spec) },
    { enabled: whole && spec.window !== "" && spec.for !== "", keep: true },
  );
  if (!tried.data) return <Trouble error={tried.error} />;
  const { holds, message, tells } = tried.data;
  return (
    <p className="trial" role="status">
      {holds === null ? (
        "Now: not enough data; the rule needs a whole window."
      ) : (
        <>
          <strong className={holds ? "tone-bad" : "tone-good"}>
            Now: the condition is {holds ? "true" : "false"}.
          </strong>{" "}
          {message}.
        </>
      )}{" "}
      <span className="soft">
        It would notify {tells.length ? tells.join(", ") : "no channel: none is set up for it"}.
      </span>
    </p>
  );
}
