import { describe, expect, it } from "vitest";
import type { ExecutionView, JobView } from "../api/schema.gen";
import { cellsOf } from "./calendarCells";
import { fitted, zoom } from "./camera";
import { jobTiming } from "./jobTiming";
import { lanes } from "./lanes";
import { layers } from "./layers";
import { match } from "./router";
import { inSight, scrollTo, TALLEST_PX } from "./scroll";

describe("a dependency graph in layers", () => {
  it("puts each job behind all that it waits for", () => {
    const nodes = ["a", "b", "c", "d"].map((id) => ({ id }));
    const edges = [
      { from: "a", to: "b" },
      { from: "b", to: "c" },
      { from: "a", to: "c" },
    ];
    const spots = layers(nodes, edges);
    expect(["a", "b", "c", "d"].map((id) => spots.get(id)?.x)).toEqual([0, 1, 2, 0]);
  });
  it("gives no two jobs one place, and takes 2,000 of them", () => {
    const nodes = Array.from({ length: 2_000 }, (_, at) => ({ id: String(at) }));
    const edges = nodes
      .slice(1)
      .map((node, at) => ({ from: String(Math.floor(at / 3)), to: node.id }));
    const places = [...layers(nodes, edges).values()].map((spot) => `${spot.x}/${spot.y}`);
    expect(new Set(places).size).toBe(2_000);
  });
  it("ends on a circle, too", () => {
    const spots = layers(
      [{ id: "a" }, { id: "b" }],
      [
        { from: "a", to: "b" },
        { from: "b", to: "a" },
      ],
    );
    expect(spots.size).toBe(2);
  });
});

describe("rows in sight", () => {
  it("are those under the eye", () => {
    const sight = inSight(1_000, 20, 400, 100);
    expect([sight.first, sight.last, sight.height, sight.top]).toEqual([20, 26, 20_000, 400]);
  });
  it("reach the last of millions, though no element can be that tall", () => {
    const rows = 5_000_000;
    const sight = inSight(rows, 20, TALLEST_PX - 400, 400);
    expect(sight.height).toBe(TALLEST_PX);
    expect(sight.last).toBe(rows);
    const middle = inSight(rows, 20, scrollTo(2_500_000, rows, 20, 400), 400);
    expect(middle.first).toBeLessThanOrEqual(2_500_000);
    expect(middle.last).toBeGreaterThan(2_500_000);
  });
  it("are none of an empty list", () => {
    expect(inSight(0, 20, 0, 100).last).toBe(0);
  });
});

describe("bars on a timeline", () => {
  it("overlap in lines of their own, and share them after each other", () => {
    const spans = [
      { from: 0, to: 10 },
      { from: 5, to: 15 },
      { from: 10, to: 20 },
    ];
    expect(lanes(spans)).toEqual({ places: [0, 1, 0], count: 2 });
  });
});

describe("the camera", () => {
  it("keeps the point under the pointer when it zooms", () => {
    const before = fitted({ width: 5_000, height: 3_000 }, { width: 800, height: 600 });
    const after = zoom(before, 2, { x: 200, y: 100 });
    expect(after.x + 200 / after.scale).toBeCloseTo(before.x + 200 / before.scale);
  });
});

describe("addresses", () => {
  it("name pages and what they are about", () => {
    expect(match("/ui/jobs/{id}", "/ui/jobs/a%20b")).toEqual({ id: "a b" });
    expect(match("/ui/jobs/{id}", "/ui/jobs")).toBeNull();
    expect(match("/ui/jobs", "/ui/jobs/")).toEqual({});
    expect(match("/ui/jobs/{id}", "/ui/jobs/%E0%A4%A")).toBeNull();
  });
});

describe("a job's story", () => {
  const job = {
    created_at: "2026-01-01T00:00:00Z",
    run_at: null,
    finished_at: "2026-01-01T00:00:30Z",
    status: "succeeded",
    dependencies: [],
  } as unknown as JobView;
  const tried = (attempt: number, claimed: number, end: number, status: string) =>
    ({
      attempt,
      status,
      claimed_at: `2026-01-01T00:00:${String(claimed).padStart(2, "0")}Z`,
      start_time: `2026-01-01T00:00:${String(claimed).padStart(2, "0")}Z`,
      end_time: `2026-01-01T00:00:${String(end).padStart(2, "0")}Z`,
    }) as unknown as ExecutionView;

  it("tells waits and tries in the order of time, without gaps", () => {
    const parts = jobTiming(
      job,
      [tried(2, 20, 30, "succeeded"), tried(1, 5, 10, "failed")],
      Date.now(),
    );
    expect(parts.map((one) => one.label)).toEqual([
      "waited for a worker",
      "attempt 1: failed",
      "waited to retry",
      "attempt 2: succeeded",
    ]);
    for (const [at, one] of parts.entries()) if (at) expect(one.from).toBe(parts[at - 1]?.to);
  });
  it("goes on while a job waits", () => {
    const parts = jobTiming(
      { ...job, status: "queued", finished_at: null },
      [],
      Date.parse("2026-01-01T00:01:00Z"),
    );
    expect(parts).toHaveLength(1);
    expect(parts[0]?.open).toBe(true);
  });
});

describe("a strip of instants", () => {
  const START = Date.parse("2026-01-31T22:00:00Z");
  const every = (seconds: number, many: number) =>
    Array.from({ length: many }, (_, at) => ({
      at: START + at * seconds * 1000,
      label: "",
      tone: "busy",
      shape: "◇",
    }));
  it("has a cell a day, in the schedule's own zone", () => {
    const cells = cellsOf(every(86_400, 3), "Europe/Berlin", START + 86_400_000);
    expect(cells.map((cell) => cell.key)).toEqual(["2026-01-31", "2026-02-01", "2026-02-02"]);
    expect(cells.map((cell) => cell.isNow)).toEqual([false, true, false]);
    expect(cells.map((cell) => cell.isNext)).toEqual([false, true, false]);
  });
  it("has cells of hours and of minutes where there are too many for a day", () => {
    const hours = cellsOf(every(600, 13), "UTC", START);
    expect(hours.map((cell) => cell.key)).toEqual([
      "2026-01-31 22",
      "2026-01-31 23",
      "2026-02-01 00",
    ]);
    const minutes = cellsOf(every(20, 9), "UTC", START + 60_000);
    expect(minutes.map((cell) => [cell.key.slice(11), cell.marks.length])).toEqual([
      ["22:00", 3],
      ["22:01", 3],
      ["22:02", 3],
    ]);
    expect(minutes.findIndex((cell) => cell.isNext)).toBe(1);
  });
  it("of nothing has no cells", () => {
    expect(cellsOf([], "UTC", START)).toEqual([]);
  });
});
