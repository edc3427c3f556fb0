// The policy of the cell: order, backfill and limits, and a dialog for presets.

import { useState } from "react";
import type { PolicyView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { useCall } from "../api/use";
import { rotaLine } from "../lib/commands";
import { count } from "../lib/format";
import {
  backfillWords,
  orderWords,
  PRESET_NAMES,
  PRESETS,
  type PresetName,
  presetAct,
  restoreAct,
} from "../lib/policy";
import { length } from "../lib/time";
import { ActionButton, AsCommand, CommandLines } from "./Actions";
import { Command, Facts, Loading, Panel, Trouble } from "./basics";
import { Dialog } from "./Dialog";

export function PolicyPanel() {
  const found = useCall("GET /policy", {}, { every: 10_000 });
  const [choosing, setChoosing] = useState(false);
  const operate = useMay("operate");
  const policy = found.data;
  return (
    <Panel
      title="Policy"
      acts={
        operate && policy ? (
          <button type="button" className="small" onClick={() => setChoosing(true)}>
            Use a preset
          </button>
        ) : null
      }
    >
      <Trouble error={found.error} />
      {policy ? <PolicyFacts policy={policy} /> : found.isPending ? <Loading /> : null}
      <AsCommand act={{ call: "GET /policy", asked: {}, rota: rotaLine("policy", "show") }} />
      {choosing && policy ? (
        <PresetDialog policy={policy} onClose={() => setChoosing(false)} />
      ) : null}
    </Panel>
  );
}

function PolicyFacts(props: { policy: PolicyView }) {
  const { policy } = props;
  const most = (value: number | null) => (value === null ? "no limit" : count(value));
  return (
    <Facts
      items={[
        ["Order", orderWords(policy)],
        ["Backfill", backfillWords(policy)],
        [
          "A long job waits",
          policy.beta && policy.order !== "fifo" && policy.order !== "priority"
            ? `${policy.beta} times its length longer (up to ${length(policy.length_cap)})`
            : null,
        ],
        ["A point of priority is worth", `${length(policy.priority_wait)} of waiting`],
        ["Half-life of usage", length(policy.half_life)],
        [
          "Preemption",
          policy.preempt_gap === null
            ? "none"
            : `for a priority higher by ${policy.preempt_gap}, after ${length(policy.preempt_after)}`,
        ],
        ["Executions of the cell", most(policy.max_running)],
        ["Live jobs of the cell", most(policy.max_queued)],
      ]}
    />
  );
}

function PresetDialog(props: { policy: PolicyView; onClose: () => void }) {
  // Kept for undo, because the policy behind the dialog changes.
  const [before] = useState(props.policy);
  const [preset, setPreset] = useState<PresetName>("default");
  const { means, beware } = PRESETS[preset];
  const act = presetAct(preset, before);
  return (
    <Dialog title="Use a preset" onClose={props.onClose}>
      <label className="field">
        Preset
        <select value={preset} onChange={(event) => setPreset(event.target.value as PresetName)}>
          {PRESET_NAMES.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <p>{means}</p>
      {beware ? (
        <div className="note-bar" role="note">
          <strong>Warning:</strong> {beware}
        </div>
      ) : null}
      <p className="soft">
        It applies from the next decision, for all tenants and queues of this cell. Running jobs
        continue; waiting jobs are ordered again. All settings change to those of the preset; the
        limits of the whole cell stay. To simulate it with the jobs of the last week:
      </p>
      <Command text={rotaLine("history", "replay", "--after", "7d", "--policy", preset)} />
      <h3>Apply</h3>
      <CommandLines act={act} />
      <div className="dialog-acts">
        <button type="button" onClick={props.onClose}>
          Close
        </button>
        <ActionButton
          label="Apply policy"
          needs="operate"
          act={act}
          undo={restoreAct(before)}
          done={`The policy is ${preset}.`}
          onDone={props.onClose}
        />
      </div>
    </Dialog>
  );
}
