import { expect, test } from "vitest";
import type { TimelineBucketsView } from "../api/schema.gen";
import { bucketSummary, cellsOf, cellText, heightOf } from "./timelineBuckets";

const CROWD: TimelineBucketsView = {
  step: 60,
  total: 2_004,
  estimated: true,
  lanes: [{ worker_id: "w", began: [4, 0, 2_000], failed: [1, 0, 0] }],
};

test("only stretches in which something began are cells, and none goes past the end", () => {
  const cells = cellsOf(CROWD, 0, 150_000).get("w") ?? [];
  expect(cells.map((one) => [one.from, one.to, one.began, one.failed])).toEqual([
    [0, 60_000, 4, 1],
    [120_000, 150_000, 2_000, 0],
  ]);
});

test("the fullest stretch is whole, and a nearly empty one is still seen", () => {
  const [few, many] = cellsOf(CROWD, 0, 180_000).get("w") ?? [];
  if (!few || !many) throw new Error("no cells");
  expect(heightOf(many, 2_000)).toBe(1);
  expect(heightOf(few, 2_000)).toBe(0.12);
  expect(cellText(few, false)).toMatch(/^4 started from .*, 25 % failed$/);
});

test("what is shown and what is not is said", () => {
  expect(bucketSummary(CROWD, 1_000, 1_500)).toBe(
    "About 2,004 executions started in this time, counted in steps of 1 min. Higher means more; red is the part that failed. " +
      "Large counts are estimated from samples; zoom in for exact ones. " +
      "Bars are 1,000 of the 1,500 running executions.",
  );
  expect(bucketSummary({ ...CROWD, estimated: false }, 0, 0)).toMatch(/^2,004 .*failed\.$/);
});
