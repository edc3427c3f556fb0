// Alert rules: formatted values, the calls that change them, and the same as `rota` commands.

import type { AlertSpec, AlertView, ChannelSpec, DeliveryView } from "../api/schema.gen";
import { type Act, rotaLine } from "./commands";
import { bytes, count, plural, quote } from "./format";
import { length } from "./time";

type Condition = AlertView["condition"];

/** All conditions, and whether a rule can name a queue; the compiler reports a missing one. */
export const BY_QUEUE: Readonly<Record<Condition, boolean>> = {
  backlog_grows: true,
  wait: true,
  failure_rate: true,
  dead_letters: true,
  worker_lost: false,
  no_workers: false,
  schedule_late: false,
  schedule_missed: false,
  deadline_at_risk: false,
  deadline_missed: false,
  leader_changed: false,
  store_slow: false,
  tables_behind: false,
  jobs_quarantined: false,
  records_lost: false,
  disk_low: false,
};
export const CONDITIONS = Object.keys(BY_QUEUE) as readonly Condition[];
export const SEVERITIES: readonly AlertView["severity"][] = ["info", "warning", "critical"];

export function figure(value: number | null, unit: string): string {
  if (value === null) return "–";
  if (unit === "bytes") return bytes(value);
  if (unit === "ratio") return `${Number((value * 100).toFixed(1))} %`;
  if (unit === "s") return length(value);
  if (value === 1) return `1 ${unit.replace(/s$/, "")}`;
  return value < 1000 ? `${Number(value.toFixed(2))} ${unit}` : `${count(value)} ${unit}`;
}

/** A duration for the API, in the largest unit that divides it. */
export function lengthWord(seconds: number): string {
  for (const [unit, size] of [
    ["d", 86_400],
    ["h", 3_600],
    ["m", 60],
  ] as const)
    if (seconds && seconds % size === 0) return `${seconds / size}${unit}`;
  return `${seconds}s`;
}

/** Values of the form, as typed. */
export interface Draft {
  condition: AlertView["condition"];
  threshold: string;
  window: string;
  for: string;
  at_least: string;
  severity: AlertView["severity"];
  queue: string;
  /** Null: all channels. */
  channels: string[] | null;
  repeat: string;
  enabled: boolean;
}

export function draftOf(rule: AlertView): Draft {
  return {
    condition: rule.condition,
    threshold: String(rule.threshold),
    window: lengthWord(rule.window),
    for: lengthWord(rule.for),
    at_least: String(rule.at_least),
    severity: rule.severity,
    queue: rule.queue ?? "",
    channels: rule.channels,
    repeat: rule.repeat === null ? "" : lengthWord(rule.repeat),
    enabled: rule.enabled,
  };
}

export function specOf(draft: Draft): AlertSpec {
  const queue = BY_QUEUE[draft.condition] && draft.queue ? { queue: draft.queue } : {};
  return {
    condition: draft.condition,
    threshold: Number(draft.threshold),
    window: draft.window,
    for: draft.for,
    at_least: Number(draft.at_least),
    severity: draft.severity,
    ...queue,
    ...(draft.channels === null ? {} : { channels: draft.channels }),
    ...(draft.repeat ? { repeat: draft.repeat } : {}),
    ...(draft.enabled ? {} : { enabled: false }),
  };
}

export function setAct(name: string, draft: Draft): Act {
  const spec = specOf(draft);
  const words = ["alerts", "set", name || "NAME", "--condition", draft.condition];
  words.push("--threshold", draft.threshold, "--window", draft.window, "--for", draft.for);
  words.push("--at-least", draft.at_least, "--severity", draft.severity);
  if (spec.queue) words.push("--queue", spec.queue);
  for (const channel of draft.channels ?? []) words.push("--channel", channel);
  if (draft.channels?.length === 0) words.push("--nobody");
  if (draft.repeat) words.push("--repeat", draft.repeat);
  if (!draft.enabled) words.push("--off");
  return {
    call: "PUT /alerts/{name}",
    asked: { path: { name: name || "NAME" }, body: spec },
    rota: rotaLine(...words),
  };
}

export function silenceAct(name: string, span: string, reason: string): Act {
  const why = reason ? ["--reason", reason] : [];
  return {
    call: "PUT /alerts/{name}/silence",
    asked: { path: { name }, body: { for: span, ...(reason ? { reason } : {}) } },
    rota: rotaLine("alerts", "silence", name, "--for", span, ...why),
  };
}

export function unsilenceAct(name: string): Act {
  return {
    call: "DELETE /alerts/{name}/silence",
    asked: { path: { name } },
    rota: rotaLine("alerts", "unsilence", name),
  };
}

/** The address is secret: the command to copy has a variable in its place. */
export function channelAct(name: string, spec: ChannelSpec): { act: Act; shown: Act } {
  const given = spec.secret ? ` --secret "$ROTA_ALERT_SECRET"` : "";
  const rota = `rota alerts channels set ${quote(name || "NAME")} --url "$ROTA_ALERT_URL"${given} --severity ${spec.severity}`;
  const act = { call: "PUT /alert-channels/{name}", rota } as const;
  const hidden = { ...spec, url: "ADDRESS", ...(spec.secret ? { secret: "SECRET" } : {}) };
  return {
    act: { ...act, asked: { path: { name }, body: spec } },
    shown: { ...act, asked: { path: { name: name || "NAME" }, body: hidden } },
  };
}

/** The delivery of a notification to one channel, shown after the channel's name. */
export function deliveryText(one: DeliveryView): string {
  const tries = one.tries > 1 ? ` after ${plural(one.tries, "try", "tries")}` : "";
  if (one.status === "taken") return `taken${tries}`;
  if (one.status === "given_up") return `given up${tries}: ${one.error ?? ""}`;
  return one.tries ? `not delivered yet${tries}: ${one.error ?? ""}` : "sending";
}
