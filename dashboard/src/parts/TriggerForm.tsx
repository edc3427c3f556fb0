// Form for a trigger: the events, and the command to run.

import { type FormEvent, useState } from "react";
import { call, type Problem } from "../api/client";
import { line } from "../api/live";
import type { TriggerView } from "../api/schema.gen";
import { type Act, rotaLine } from "../lib/commands";
import { quote } from "../lib/format";
import { go, pageOf } from "../lib/router";
import { CommandLines, useNotify } from "./Actions";
import { Trouble } from "./basics";
import { Dialog, DialogEnd } from "./Dialog";
import { splitWords } from "./ScheduleForm";

export function TriggerForm(props: { onClose: () => void }) {
  const say = useNotify();
  const [name, setName] = useState("");
  const [event, setEvent] = useState("object.uploaded");
  const [filter, setFilter] = useState("");
  const [words, setWords] = useState("./import.sh '{{event.data.path}}'");
  const [problem, setProblem] = useState<Problem | null>(null);
  const act = actOf(name, event, filter.trim(), splitWords(words));
  const save = async (submitted: FormEvent) => {
    submitted.preventDefault();
    try {
      const made = (await call(act.call, act.asked)) as unknown as TriggerView;
      say("Trigger created.");
      props.onClose();
      line.readAll();
      go(pageOf.trigger(made.trigger_id));
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  return (
    <Dialog title="New trigger" onClose={props.onClose} wide>
      <form onSubmit={(submitted) => void save(submitted)}>
        <div className="fields">
          <label className="field">
            Name
            <input value={name} required onChange={(e) => setName(e.target.value)} />
          </label>
          <label className="field">
            Event type, or a prefix such as shop.*
            <input
              value={event}
              required
              onChange={(e) => setEvent(e.target.value)}
              spellCheck={false}
            />
          </label>
          <label className="field">
            Filter, such as data.size &gt; 1000 (empty: every event)
            <input
              className="code"
              value={filter}
              onChange={(e) => setFilter(e.target.value)}
              spellCheck={false}
            />
          </label>
          <label className="field">
            Command; {"{{event.data.path}}"} and other placeholders are replaced
            <input
              className="code"
              value={words}
              required
              onChange={(e) => setWords(e.target.value)}
              spellCheck={false}
            />
          </label>
        </div>
        <Trouble error={problem} />
        <CommandLines act={act} />
        <DialogEnd onClose={props.onClose}>Create trigger</DialogEnd>
      </form>
    </Dialog>
  );
}

function actOf(name: string, event: string, filter: string, argv: string[]): Act {
  const job = { name: name || "job", task: { kind: "command", argv } };
  const where = filter ? ["--where", filter] : [];
  const command = rotaLine("triggers", "create", name || "NAME", "--on", event, ...where);
  return {
    call: "POST /triggers",
    asked: { body: { name, event, ...(filter ? { filter } : {}), job } },
    rota: `${command} -- ${argv.map(quote).join(" ")}`,
  };
}
