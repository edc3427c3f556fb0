// Describes the policy of a cell: the meaning of each preset, and its disadvantages.

import type { PolicySpec, PolicyView, TenantSpec } from "../api/schema.gen";
import { type Act, rotaLine } from "./commands";

export type PresetName = NonNullable<PolicySpec["preset"]>;

export const PRESETS: Record<PresetName, { means: string; beware: string | null }> = {
  default: {
    means:
      "Tenants share the fleet by weight; inside a tenant waiting time, run time and priority count. A job that does not fit gets a reservation, and shorter jobs may pass if they do not delay it.",
    beware: null,
  },
  strict: {
    means: "Strictly by priority, then arrival. Every job that fits starts.",
    beware:
      "A job with a low priority may wait for ever, and a large job as long as small ones keep coming. Shares of tenants have no effect.",
  },
  fcfs: {
    means: "By arrival only. No job passes one that does not fit yet.",
    beware:
      "One large job delays all jobs that could use the same workers. Shares and priorities have no effect.",
  },
  easy: {
    means: "By arrival. Jobs may pass the first job that does not fit if they do not delay it.",
    beware: "Shares and priorities have no effect. No job is preempted.",
  },
  conservative: {
    means: "By arrival. Jobs may pass if they delay no job before them.",
    beware: "Shares and priorities have no effect. No job is preempted.",
  },
  "easy-sjf": {
    means:
      "The shortest job first. Jobs may pass the first job that does not fit if they do not delay it.",
    beware: "Long jobs may starve. No job is preempted.",
  },
};

export const PRESET_NAMES = Object.keys(PRESETS) as PresetName[];

const ORDERS: Record<PolicyView["order"], string> = {
  fair: "fair: the tenant with the least use for its weight",
  round_robin: "round robin: tenants in turn, one job each",
  priority: "strictly by priority, then arrival",
  fifo: "by arrival only",
};

const BACKFILLS: Record<PolicyView["backfill"], string> = {
  easy: "easy: jobs that do not delay the first that does not fit",
  conservative: "conservative: jobs that delay no job before them",
  none: "none: no job passes",
  greedy: "greedy: every job that fits",
};

export const orderWords = (policy: PolicyView): string => ORDERS[policy.order];

export const backfillWords = (policy: PolicyView): string =>
  `${BACKFILLS[policy.backfill]}${policy.candidates === "shortest" ? ", the shortest first" : ""}`;

/** Sets a preset; the limits of the whole cell are not part of it and stay. */
export function presetAct(preset: PresetName, now: PolicyView): Act {
  const limits = [
    ["max_running", now.max_running],
    ["max_queued", now.max_queued],
  ] as const;
  const kept = limits.filter(([, value]) => value !== null);
  const words = kept.map(([name, value]) => `--${name.replace("_", "-")}=${value}`);
  return {
    call: "PUT /policy",
    asked: { body: { preset, ...Object.fromEntries(kept) } },
    rota: rotaLine("policy", "set", "--preset", preset, ...words),
  };
}

const TIMES = ["length_cap", "priority_wait", "half_life", "preempt_after"];

/** Restores every setting. */
export function restoreAct(before: PolicyView): Act {
  const words = Object.entries(before).map(([name, value]) => {
    const text = value === null ? "none" : `${value}${TIMES.includes(name) ? "s" : ""}`;
    return `--${name.replaceAll("_", "-")}=${text}`;
  });
  return {
    call: "PUT /policy",
    asked: { body: { ...before } },
    rota: rotaLine("policy", "set", ...words),
  };
}

/** A tenant's settings in the form: text, empty for no limit. */
export interface TenantForm {
  weight: string;
  running: string;
  queued: string;
  cpu: string;
  memory: string;
}

export function tenantAct(name: string, form: TenantForm): Act {
  const amount = (text: string) => (text.trim() === "" ? null : Number(text));
  const memory = form.memory.trim();
  const body: TenantSpec = {
    weight: Number(form.weight),
    quota: {
      running: amount(form.running),
      queued: amount(form.queued),
      cpu: amount(form.cpu),
      memory: /^\d*$/.test(memory) ? amount(memory) : memory,
    },
  };
  const limits = (["running", "queued", "cpu", "memory"] as const).map(
    (kind) => `--${kind}=${form[kind].trim() || "none"}`,
  );
  return {
    call: "PUT /tenants/{name}",
    asked: { path: { name }, body },
    rota: rotaLine("tenants", "set", name, `--weight=${form.weight}`, ...limits),
  };
}
