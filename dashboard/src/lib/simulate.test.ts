import { describe, expect, it } from "vitest";
import type { ReplayView, SimulationView } from "../api/schema.gen";
import { curlOf } from "./commands";
import { readQuestion, simulationAct, sliceTimes, traceAct } from "./simulate";

const NOW = Date.parse("2026-01-31T12:00:00Z");

describe("a simulation", () => {
  it("is asked for as the address says", () => {
    const asked = readQuestion(new URLSearchParams("span=6+h&workers=5&policies=easy,recorded"));
    const act = simulationAct(asked, NOW);
    expect(act.asked.body).toEqual({
      from: "2026-01-31T06:00:00.000Z",
      workers: 5,
      policies: ["recorded", "easy"],
    });
    expect(act.rota).toBe(
      "rota history replay --after 2026-01-31T06:00:00.000Z --policy recorded,easy",
    );
  });
  it("takes a window of its own before a span, and names what the command does not know", () => {
    const search = new URLSearchParams("from=2026-01-01T00:00Z&to=2026-01-02T00:00Z");
    const asked = readQuestion(search);
    const act = simulationAct({ ...asked, policies: ["current"] }, NOW);
    expect(act.asked.body).toMatchObject({
      from: "2026-01-01T00:00:00.000Z",
      to: "2026-01-02T00:00:00.000Z",
      policies: ["current"],
    });
    expect(act.rota).toContain("--before 2026-01-02T00:00:00.000Z --policy default");
  });
  it("ignores what is no policy and no span, and compares four at most", () => {
    const all = "recorded,current,default,strict,fcfs,best,<b>";
    const asked = readQuestion(new URLSearchParams(`span=9+y&policies=${all}`));
    expect(asked.span).toBe("24 h");
    expect(asked.policies).toEqual(["recorded", "current", "default", "strict"]);
  });
  it("of a trace is told on which machines, and by its name how a command reads it", () => {
    const asked = readQuestion(
      new URLSearchParams("of=trace&machines=alike&workers=3&cpu=8&cpus=5&policies=fcfs,current"),
    );
    const act = traceAct(asked, new File(["x"], "my log.swf.gz"));
    expect(act.asked.query).toEqual({
      name: "my log.swf.gz",
      workers: "3",
      cpu: "8",
      policies: ["current", "fcfs"],
    });
    expect(act.rota).toBe("rota simulate --swf 'my log.swf.gz' --workers 3 --cpu 8 --policy fcfs");
    expect(curlOf(act, "http://h")).toContain("--data-binary '@my log.swf.gz'");
    const week = traceAct({ ...asked, machines: "own" }, new File(["x"], "week.jsonl.gz"));
    expect(week.rota).toBe("rota simulate --trace week.jsonl.gz --policy fcfs");
  });
  it("without a date is drawn from nought on", () => {
    const policy = { policy: "easy", waits: [1, 2], uses: [0, 1] } as unknown as ReplayView;
    const view = { from: null, span: 10, policies: [policy] };
    expect(sliceTimes(view as unknown as SimulationView)).toEqual([2.5, 7.5]);
  });
  it("is drawn from its first arrival on", () => {
    const policy = { policy: "easy", waits: [1, 2], uses: [0, 1] } as unknown as ReplayView;
    const view = { from: "1970-01-01T00:01:40Z", span: 10, policies: [policy] };
    expect(sliceTimes(view as unknown as SimulationView)).toEqual([102.5, 107.5]);
    expect(sliceTimes({ ...view, policies: [] } as unknown as SimulationView)).toEqual([]);
  });
});
