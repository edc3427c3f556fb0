import { describe, expect, it } from "vitest";
import type { EstimateView, JobView, PhaseView } from "../api/schema.gen";
import { cancelText, groupOf, memberOf } from "./group";
import { jobTiming } from "./jobTiming";
import {
  deadlineWords,
  enoughWords,
  figureWords,
  historyWords,
  pieces,
  placeWords,
  spellWords,
  startSpan,
  startWords,
} from "./why";

const NOW = Date.parse("2026-01-31T09:00:00Z");
const WORKER = "01a1e030-62ea-7000-95ce-abc64ef5e609";
const JOB = "01a1e030-677b-7000-9ec1-e5fdb4c7ded3";

function estimate(changes: Partial<EstimateView>): EstimateView {
  return {
    at: "2026-01-31T09:10:00Z",
    method: "forward_run",
    low: "2026-01-31T09:05:00Z",
    high: "2026-01-31T09:20:00Z",
    worker_id: WORKER,
    accuracy: { inside: 0.8, starts: 1250 },
    ...changes,
  };
}

describe("when a job starts", () => {
  it("is a time, an interval, and how well such were met", () => {
    const words = startWords(estimate({}), NOW);
    expect(words.when).toMatch(/^At about .*, in 10 min$/);
    expect(words.likely).toBe("likely in 5 min to in 20 min");
    expect(words.how).toBe(
      "a forecast of the scheduler; of 1,250 starts forecast, 80 % fell inside",
    );
  });
  it("says that an estimate has not been tried yet", () => {
    const words = startWords(estimate({ method: "reservation", accuracy: null }), NOW);
    expect(words.how).toBe("capacity is reserved for it; no estimate has been checked yet");
  });
  it.each([
    [{ method: "never", at: null }, "Never, unless something changes."],
    [{ method: "unknown", at: null }, "Start time unknown."],
    [
      { method: "unknown: it depends on how long others run", at: null },
      "Start time unknown: it depends on how long others run.",
    ],
    [{ at: "2026-01-31T08:59:00Z" }, "As soon as a worker with free capacity asks for work."],
  ])("%o", (changes, words) => expect(startWords(estimate(changes), NOW).when).toBe(words));
  it("begins now where the interval has begun", () => {
    const words = startWords(estimate({ low: "2026-01-31T08:50:00Z" }), NOW);
    expect(words.likely).toBe("likely from now to in 20 min");
  });
  it("lies between now and the last of its times", () => {
    expect(startSpan(estimate({}), NOW)).toEqual({ low: 0.25, at: 0.5, high: 1 });
    expect(startSpan(estimate({ at: null }), NOW)).toBeNull();
    expect(startSpan(estimate({}), NOW + 3_600_000)).toBeNull();
  });
});

describe("what else is said of a job that waits", () => {
  it("names its place in the queue", () => {
    expect(placeWords({ ahead: 0, waiting: 1, exact: true, starts_before: 1 })).toBe(
      "0 ahead of it, of 1 similar job; 1 job of any kind before it",
    );
    expect(placeWords({ ahead: 5, waiting: 9, exact: false, tenants_ahead: 2 })).toBe(
      "about 5 ahead of it, of 9 similar jobs; 2 tenants ahead of its own",
    );
  });
  it("names what was", () => {
    const spell = { since: "", seconds: 90 } as const;
    expect(spellWords({ ...spell, what: "queued", until: null, reason: "resources_busy" })).toBe(
      "queued 1 min 30 s so far (resources busy)",
    );
    expect(spellWords({ ...spell, what: "running", until: "x", worker_id: WORKER })).toBe(
      "running 1 min 30 s on abc64ef5e609",
    );
  });
  it("tells a deadline that holds from one that does not", () => {
    const finish_by = "2026-01-31T10:00:00Z";
    expect(deadlineWords({ finish_by, verdict: "on_time", slack: 213 })).toEqual({
      verdict: "on time",
      slack: "3 min 33 s to spare",
      tone: "good",
    });
    expect(deadlineWords({ finish_by, verdict: "late", slack: -500 })).toEqual({
      verdict: "late",
      slack: "8 min 20 s too late",
      tone: "bad",
    });
  });
  it("never says that something is enough that nobody tried", () => {
    expect([true, false, null].map(enoughWords)).toEqual([
      "then it starts at once",
      "not enough by itself",
      "it was not tried whether this is enough",
    ]);
  });
  it("finds what a sentence names", () => {
    expect(pieces(`worker ${WORKER} keeps a place for job ${JOB}, soon`)).toEqual([
      { text: "worker " },
      { text: WORKER, names: "worker" },
      { text: " keeps a place for job " },
      { text: JOB, names: "job" },
      { text: ", soon" },
    ]);
    expect(pieces("<b>no id</b>")).toEqual([{ text: "<b>no id</b>" }]);
    expect(pieces("")).toEqual([]);
  });
});

describe("arrays and gangs", () => {
  const job = (changes: object) =>
    ({
      job_id: JOB,
      status: "running",
      dependencies: [],
      created_at: "2026-01-31T09:00:00Z",
      started_at: null,
      finished_at: null,
      run_at: null,
      ...changes,
    }) as unknown as JobView;
  const tally = { queued: 3, running: 2, succeeded: 4, failed: 1, cancelled: 0 };

  it("count their members by where they are", () => {
    const group = groupOf(job({ array: { count: 10, max_parallel: 2, ...tally } }));
    expect([group?.kind, group?.size]).toEqual(["array", 10]);
    expect(group?.shares.map((share) => `${share.count} ${share.state}`)).toEqual([
      "4 succeeded",
      "2 running",
      "3 queued",
      "1 failed",
      "0 cancelled",
    ]);
    expect(groupOf(job({ gang: { size: 3, running: 3 } }))?.shares[0]?.count).toBe(0);
    expect(groupOf(job({ array: null }))).toBeNull();
  });
  it("are known by their members, the first one too", () => {
    expect(memberOf(job({ array_id: "a", array_index: 0 }))).toEqual({
      kind: "array",
      id: "a",
      index: 0,
    });
    expect(memberOf(job({ gang_id: "g", gang_index: 2 }))?.kind).toBe("gang");
    expect(memberOf(job({}))).toBeNull();
  });
  it("say what cancelling takes along", () => {
    expect(cancelText(job({ gang: { size: 3 } }))).toMatch(/^All of the gang/);
    expect(cancelText(job({ gang_id: "g", gang_index: 2 }))).toMatch(
      /^This cancels all members of its gang/,
    );
    expect(cancelText(job({ status: "queued" }))).toBe("It is cancelled before it starts.");
  });
  it("run from their first member's start to their last one's end", () => {
    const started_at = "2026-01-31T09:01:00Z";
    const array = { count: 10, max_parallel: null, ...tally };
    const open = jobTiming(job({ array, started_at }), [], NOW + 90_000);
    expect(open.map((one) => [one.label, one.to - one.from, one.open])).toEqual([
      ["waited for a worker", 60_000, false],
      ["its members ran", 30_000, true],
    ]);
    const ended = { array, started_at, finished_at: "2026-01-31T09:02:00Z", status: "failed" };
    expect(jobTiming(job(ended), [], NOW).at(-1)?.tone).toBe("bad");
  });
});

describe("what was so far", () => {
  const spell = (reason: string, until: string | null, seconds: number): PhaseView => ({
    what: "queued",
    since: "2026-01-31T12:00:00Z",
    until,
    seconds,
    reason,
    worker_id: null,
  });
  it("tells causes that were seen as parts of the wait that lasts", () => {
    const past = spell("retry", "2026-01-31T12:01:00Z", 60);
    const now = spell("worker", null, 240);
    const seen = spell("resources_busy", "2026-01-31T12:04:00Z", 180);
    expect(historyWords([past, now, seen])).toBe(
      "queued 1 min (retry); queued 4 min so far (worker); of that resources busy 3 min",
    );
    expect(historyWords([past])).toBe("queued 1 min (retry)");
    expect(figureWords("nearest_lacks")).toBe("missing on the nearest");
    expect(figureWords("max_running")).toBe("max running");
  });
});
