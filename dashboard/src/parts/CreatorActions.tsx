// Actions of schedules and triggers: pause, resume, delete.

import type { Json, ScheduleView, TriggerView } from "../api/schema.gen";
import { rotaLine } from "../lib/commands";
import { taskLine } from "../lib/format";
import { go, pageOf } from "../lib/router";
import { ActionButton } from "./Actions";
import { Facts, Panel } from "./basics";

const KINDS = {
  schedule: {
    noun: "schedules",
    pause: "POST /schedules/{schedule_id}/pause",
    resume: "POST /schedules/{schedule_id}/resume",
    drop: "DELETE /schedules/{schedule_id}",
    resumed: "It runs again at its next time.",
    warning: "Its jobs continue; it creates no more. Its history can be read for a while.",
    list: pageOf.schedules,
  },
  trigger: {
    noun: "triggers",
    pause: "POST /triggers/{trigger_id}/pause",
    resume: "POST /triggers/{trigger_id}/resume",
    drop: "DELETE /triggers/{trigger_id}",
    resumed: "It reacts again to new events.",
    warning: "Its jobs continue; events that wait in it are dropped.",
    list: pageOf.triggers,
  },
} as const;

export function CreatorActions(props: { of: ScheduleView | TriggerView }) {
  const { of } = props;
  const [kind, id] =
    "schedule_id" in of
      ? (["schedule", of.schedule_id] as const)
      : (["trigger", of.trigger_id] as const);
  const words = KINDS[kind];
  const path = { [`${kind}_id`]: id };
  const pause = { call: words.pause, asked: { path }, rota: rotaLine(words.noun, "pause", id) };
  const resume = { call: words.resume, asked: { path }, rota: rotaLine(words.noun, "resume", id) };
  return (
    <>
      <ActionButton
        label={of.paused ? "Resume" : "Pause"}
        needs="submit"
        act={of.paused ? resume : pause}
        undo={of.paused ? pause : resume}
        done={of.paused ? words.resumed : "It creates no jobs until resumed."}
      />
      <ActionButton
        label="Delete"
        danger
        needs="submit"
        confirm={words.warning}
        act={{ call: words.drop, asked: { path }, rota: rotaLine(words.noun, "delete", id) }}
        done="Deleted."
        onDone={() => go(words.list)}
      />
    </>
  );
}

/** Jobs of a schedule or trigger. */
export function JobMade(props: { job: Record<string, Json> }) {
  const { job } = props;
  return (
    <Panel title="Job">
      <Facts
        items={[
          ["Name", String(job.name ?? "")],
          ["Task", <code key="t">{taskLine(job.task ?? null)}</code>],
          ["Queue", String(job.queue ?? "default")],
        ]}
      />
    </Panel>
  );
}
