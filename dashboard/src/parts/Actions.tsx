// Actions: a button, the same action as a command to copy, and a message with the result.

import { createContext, type ReactNode, useCallback, useContext, useMemo, useState } from "react";
import { call, type Problem } from "../api/client";
import { line } from "../api/live";
import { type May, useMay } from "../api/session";
import { type Act, curlOf } from "../lib/commands";
import { Command, Trouble } from "./basics";
import { Dialog } from "./Dialog";

interface Notification {
  id: number;
  text: string;
  bad?: boolean;
  undo?: (() => void) | undefined;
}

type Say = (text: string, more?: { bad?: boolean; undo?: () => void }) => void;

const Saying = createContext<Say>(() => undefined);

export const useNotify = (): Say => useContext(Saying);

/** Shows the result for some seconds, with an undo where possible. */
export function Notifications(props: { children: ReactNode }) {
  const [said, setSaid] = useState<readonly Notification[]>([]);
  const drop = useCallback(
    (id: number) => setSaid((all) => all.filter((one) => one.id !== id)),
    [],
  );
  const say = useMemo<Say>(() => {
    let next = 0;
    return (text, more = {}) => {
      next += 1;
      const id = next;
      setSaid((all) => [...all.slice(-3), { id, text, ...more }]);
      setTimeout(() => drop(id), more.undo || more.bad ? 12_000 : 5_000);
    };
  }, [drop]);
  return (
    <Saying.Provider value={say}>
      {props.children}
      <div className="sayings" role="status">
        {said.map((one) => (
          <div key={one.id} className={one.bad ? "saying bad" : "saying"}>
            <span>{one.text}</span>
            {one.undo ? (
              <button
                type="button"
                className="small"
                onClick={() => {
                  one.undo?.();
                  drop(one.id);
                }}
              >
                Undo
              </button>
            ) : null}
            <button
              type="button"
              className="quiet small"
              aria-label="Dismiss"
              onClick={() => drop(one.id)}
            >
              ✕
            </button>
          </div>
        ))}
      </div>
    </Saying.Provider>
  );
}

export function CommandLines(props: { act: Act }) {
  return (
    <div className="command-lines">
      <Command text={props.act.rota} />
      <Command text={curlOf(props.act, location.origin)} />
    </div>
  );
}

/** The same action as a command, collapsed. */
export function AsCommand(props: { act: Act }) {
  return (
    <details>
      <summary>As a command</summary>
      <CommandLines act={props.act} />
    </details>
  );
}

export interface ActionProps {
  label: string;
  act: Act;
  needs: May;
  /** The question before the action. */
  confirm?: string;
  danger?: boolean;
  /** The message afterwards; from the answer if it has more details. */
  done?: string | ((answer: unknown) => { text: string; bad?: boolean });
  undo?: Act;
  onDone?: () => void;
  small?: boolean;
}

/** Acts on one click, or asks first; `>_` shows the same as a command. */
export function ActionButton(props: ActionProps) {
  const may = useMay(props.needs);
  const say = useNotify();
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  if (!may) return null;

  const run = async (act: Act, done: NonNullable<ActionProps["done"]>, undo?: Act) => {
    setBusy(true);
    setProblem(null);
    try {
      const answer = await call(act.call, act.asked);
      const { text, bad = false } = typeof done === "string" ? { text: done } : done(answer);
      say(text, bad ? { bad } : undo ? { undo: () => run(undo, "Undone.") } : {});
      setOpen(false);
      props.onDone?.();
    } catch (error) {
      setProblem(error as Problem);
      if (!open) say((error as Problem).message, { bad: true });
    } finally {
      setBusy(false);
      line.readAll();
    }
  };
  const perform = () => run(props.act, props.done ?? `${props.label}: done.`, props.undo);
  const kind = `${props.danger ? "danger" : ""} ${props.small ? "small" : ""}`;
  return (
    <span className="act">
      <button
        type="button"
        className={kind}
        disabled={busy}
        onClick={() => (props.confirm ? setOpen(true) : void perform())}
      >
        {props.label}
      </button>
      <button
        type="button"
        className={`quiet terminal ${props.small ? "small" : ""}`}
        aria-label={`${props.label}: show the command`}
        title="Show the command"
        onClick={() => setOpen(true)}
      >
        &gt;_
      </button>
      {open ? (
        <Dialog title={props.label} onClose={() => setOpen(false)}>
          {props.confirm ? <p>{props.confirm}</p> : null}
          <Trouble error={problem} />
          <CommandLines act={props.act} />
          <div className="dialog-acts">
            <button type="button" onClick={() => setOpen(false)}>
              Close
            </button>
            <button
              type="button"
              className={props.danger ? "danger primary" : "primary"}
              disabled={busy}
              onClick={() => void perform()}
            >
              {props.label}
            </button>
          </div>
        </Dialog>
      ) : null}
    </span>
  );
}
