import { describe, expect, it } from "vitest";
import type { JobView } from "../api/schema.gen";
import { hasLength, noteBeside } from "./status";

const job = (changes: Partial<JobView>): JobView =>
  ({
    status: "running",
    started_at: "2026-01-31T09:00:00Z",
    finished_at: null,
    ...changes,
  }) as JobView;

describe("how long a job took", () => {
  it("is told of one that runs or has ended", () => {
    expect(hasLength(job({}))).toBe(true);
    expect(hasLength(job({ status: "cancelling" }))).toBe(true);
    expect(hasLength(job({ status: "failed", finished_at: "2026-01-31T09:01:00Z" }))).toBe(true);
  });

  it("is not told of one that waits, for the first time or to be tried again", () => {
    expect(hasLength(job({ status: "queued", started_at: null }))).toBe(false);
    expect(hasLength(job({ status: "pending" }))).toBe(false);
    expect(hasLength(job({ status: "queued" }))).toBe(false);
  });
});

it("a status is not said twice", () => {
  expect(noteBeside("cancelled", "cancelled")).toBe(null);
  expect(noteBeside("failed", "timeout")).toBe("timeout");
  expect(noteBeside("failed", null)).toBe(null);
});
