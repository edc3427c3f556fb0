// Dialog to silence a rule for a time, with a reason.

import { type FormEvent, useState } from "react";
import { call, type Problem } from "../api/client";
import { line } from "../api/live";
import { useMay } from "../api/session";
import { silenceAct, unsilenceAct } from "../lib/alerts";
import { ActionButton, CommandLines, useNotify } from "./Actions";
import { Trouble } from "./basics";
import { Dialog, DialogEnd } from "./Dialog";

/** Silences a rule, or ends its silence. */
export function SilenceAct(props: { name: string; silenced: boolean; small?: boolean }) {
  const [open, setOpen] = useState(false);
  const may = useMay("operate");
  if (props.silenced)
    return (
      <ActionButton
        label="End silence"
        needs="operate"
        small={props.small ?? false}
        act={unsilenceAct(props.name)}
        done="Notifications are sent again. If the rule still fires, one is sent within ten seconds."
      />
    );
  if (!may) return null;
  return (
    <>
      <button type="button" className={props.small ? "small" : ""} onClick={() => setOpen(true)}>
        Silence
      </button>
      {open ? <SilenceDialog name={props.name} onClose={() => setOpen(false)} /> : null}
    </>
  );
}

function SilenceDialog(props: { name: string; onClose: () => void }) {
  const say = useNotify();
  const [span, setSpan] = useState("1h");
  const [reason, setReason] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const act = silenceAct(props.name, span, reason);
  const save = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await call(act.call, act.asked);
      say(`${props.name} is silenced for ${span}.`);
      props.onClose();
      line.readAll();
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  return (
    <Dialog title={`Silence ${props.name}`} onClose={props.onClose}>
      <form onSubmit={(event) => void save(event)}>
        <p>
          The rule is still evaluated. If it fires when the silence ends, a notification is sent
          then.
        </p>
        <label className="field">
          Duration, such as 30m, 2h or 1d
          <input value={span} required onChange={(event) => setSpan(event.target.value)} />
        </label>
        <label className="field">
          Reason
          <input
            value={reason}
            maxLength={200}
            onChange={(event) => setReason(event.target.value)}
          />
        </label>
        <Trouble error={problem} />
        <CommandLines act={act} />
        <DialogEnd onClose={props.onClose}>Silence alert</DialogEnd>
      </form>
    </Dialog>
  );
}
