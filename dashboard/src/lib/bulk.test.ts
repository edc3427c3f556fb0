import { beforeEach, expect, test, vi } from "vitest";
import type { BulkAnswer } from "../api/schema.gen";
import { refusedWords, runBulk } from "./bulk";

const { call } = vi.hoisted(() => ({ call: vi.fn() }));
vi.mock("../api/client", () => ({ call }));

const BOUND = "job … is a member of …, which is running";
const quietly = { total: 3, notify: () => undefined, stopped: () => false };

beforeEach(() => call.mockReset());

function answers(...given: BulkAnswer[]) {
  for (const answer of given) call.mockResolvedValueOnce(answer);
}

test("what a filter meets again with every piece is refused once", async () => {
  const again = { refused: 2, reasons: { [BOUND]: 2 } };
  answers({ count: 200, more: true, ...again }, { count: 5, more: false, ...again });
  const end = await runBulk("delete", { status: "failed" }, quietly);
  expect([end.done, end.refused]).toEqual([205, 2]);
  expect(refusedWords(end)).toBe(`2 could not be: 2× ${BOUND}`);
});

test("refusals of named jobs add up", async () => {
  const one = { count: 199, refused: 1, reasons: { [BOUND]: 1 } };
  answers(one, one);
  const named = Array.from({ length: 400 }, (_, place) => `job-${place}`);
  const end = await runBulk("delete", { job_ids: named }, quietly);
  expect([end.done, end.refused]).toEqual([398, 2]);
  expect(end.reasons).toEqual({ [BOUND]: 2 });
});

test("nothing is said where none was refused", async () => {
  answers({ count: 1, more: false });
  expect(refusedWords(await runBulk("retry", { status: "failed" }, quietly))).toBe("");
});
