import { describe, expect, it } from "vitest";
import type { PolicyView } from "../api/schema.gen";
import { bundlesOf, percent, sizeWord, taskLine } from "./format";
import { backfillWords, presetAct, restoreAct, tenantAct } from "./policy";

const POLICY: PolicyView = {
  order: "fair",
  backfill: "easy",
  candidates: "shortest",
  beta: 10,
  length_cap: 86_400,
  priority_wait: 36,
  half_life: 86_400,
  preempt_gap: 100,
  preempt_after: 10,
  max_running: null,
  max_queued: 5000,
};

describe("a policy", () => {
  it("keeps the limits of the cell when it takes a preset", () => {
    const act = presetAct("strict", POLICY);
    expect(act.asked.body).toEqual({ preset: "strict", max_queued: 5000 });
    expect(act.rota).toBe("rota policy set --preset strict --max-queued=5000");
  });
  it("is put back with every setting", () => {
    const act = restoreAct({ ...POLICY, preempt_gap: null });
    expect(act.asked.body).toEqual({ ...POLICY, preempt_gap: null });
    expect(act.rota).toContain("--half-life=86400s");
    expect(act.rota).toContain("--preempt-gap=none");
  });
  it("says who passes, and in which order they are tried", () => {
    expect(backfillWords(POLICY)).toMatch(/^easy: .*, the shortest first$/);
    expect(backfillWords({ ...POLICY, candidates: "order" })).not.toMatch(/shortest/);
  });
});

describe("a tenant's settings", () => {
  it("are sent whole, an empty field as no limit", () => {
    const form = { weight: "2", running: "50", queued: "", cpu: "0.5", memory: "64GiB" };
    const act = tenantAct("a b", form);
    expect(act.asked.body).toEqual({
      weight: 2,
      quota: { running: 50, queued: null, cpu: 0.5, memory: "64GiB" },
    });
    expect(act.rota).toBe(
      "rota tenants set 'a b' --weight=2 --running=50 --queued=none --cpu=0.5 --memory=64GiB",
    );
  });
  it("take a size in bytes as a number", () => {
    const form = { weight: "1", running: "0", queued: "", cpu: "", memory: "1500" };
    const act = tenantAct("t", form);
    expect(act.asked.body).toMatchObject({ quota: { running: 0, memory: 1500 } });
  });
  it("come back to the byte", () => {
    expect([0, 1500, 1024, 64 * 1024 ** 3].map(sizeWord)).toEqual(["0", "1500", "1KiB", "64GiB"]);
  });
  it("do not round a small share away", () => {
    expect([0, 0.004, 0.375, 1].map(percent)).toEqual(["0 %", "<1 %", "38 %", "100 %"]);
  });
});

describe("bundles of a task", () => {
  it("are its code and its inputs", () => {
    const task = { kind: "bundle", bundle_id: "1", argv: [], inputs: { prices: "2" } };
    expect(bundlesOf(task)).toEqual([
      { use: "program", id: "1" },
      { use: "input prices", id: "2" },
    ]);
    expect(bundlesOf({ kind: "noop" })).toEqual([]);
    expect(bundlesOf(null)).toEqual([]);
    expect(taskLine(task)).toBe("bundle 1");
    expect(taskLine({ kind: "container", image: "alpine", argv: ["echo", "a b"] })).toBe(
      "alpine echo 'a b'",
    );
  });
});
