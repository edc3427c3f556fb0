// The policy of a cell in words: what each preset means, and for whom it is bad.

import type { PolicySpec, PolicyView, TenantSpec } from "../api/schema.gen";
import { type Act, rotaLine } from "./commands";

export type PresetName = NonNullable<PolicySpec["preset"]>;

export const PRESETS: Record<PresetName, { means: string; beware: string | null }> = {
  default: {
    means:
      "Tenants share the fleet by weight; inside a tenant age, length and priority count. A job that does not fit has a place kept, and shorter ones pass if they do not delay it.",
    beware: null,
  },
  strict: {
    means: "Strictly by priority, then arrival. Whoever fits goes.",
    beware:
      "A low priority may wait for ever, and a large job as long as small ones keep coming. Shares of tenants count for nothing.",
  },
  fcfs: {
    means: "By arrival alone, and nobody passes a job that does not fit yet.",
    beware:
      "One large job holds up all that could use the same workers. Shares and priorities count for nothing.",
  },
  easy: {
    means: "By arrival; whoever does not delay the first job that does not fit may pass it.",
    beware: "Shares and priorities count for nothing; nobody is preempted.",
  },
  conservative: {
    means: "By arrival; whoever delays none of those before it may pass.",
    beware: "Shares and priorities count for nothing; nobody is preempted.",
  },
  "easy-sjf": {
    means: "The shortest job first; it may pass if it does not delay the first that does not fit.",
    beware: "Long jobs may starve. Nobody is preempted.",
  },
};

export const PRESET_NAMES = Object.keys(PRESETS) as PresetName[];

const ORDERS: Record<PolicyView["order"], string> = {
  fair: "fair: the tenant that has had the least for its weight",
  round_robin: "round robin: tenants in turn, one job each",
  priority: "strictly by priority, then arrival",
  fifo: "by arrival alone",
};

const BACKFILLS: Record<PolicyView["backfill"], string> = {
  easy: "easy: whoever does not delay the first that does not fit",
  conservative: "conservative: whoever delays nobody before it",
  none: "none: nobody passes",
  greedy: "greedy: whoever fits",
};

export const orderWords = (policy: PolicyView): string => ORDERS[policy.order];

export const backfillWords = (policy: PolicyView): string =>
  `${BACKFILLS[policy.backfill]}${policy.candidates === "shortest" ? ", the shortest first" : ""}`;

/** Takes a preset; the limits of the whole cell are no part of it and stay. */
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

/** Every setting as it was. */
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

/** A tenant's settings as a form has them: text, and empty for no limit. */
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
