import { describe, expect, it } from "vitest";
import {
  bulkFilterOf,
  EVERYTHING,
  queryOf,
  readFilter,
  resembles,
  understand,
  windowOfId,
  writeFilter,
} from "./filter";

const ID = "019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3";

describe("the filter in the address", () => {
  it("comes back as it was written", () => {
    const filter = {
      ...EVERYTHING,
      status: ["failed" as const, "expired" as const],
      queue: "q",
      name: "a b&c",
      labels: ["team:x y", "a:b:c"],
      priority: "-5",
    };
    expect(readFilter(new URLSearchParams(writeFilter(filter).toString()))).toEqual({
      ...filter,
      status: ["failed", "expired"],
    });
  });
  it("leaves out what is no status", () => {
    expect(readFilter(new URLSearchParams("status=failed,nonsense")).status).toEqual(["failed"]);
  });
  it("becomes a bulk action's filter; a label's value may have colons", () => {
    expect(bulkFilterOf({ ...EVERYTHING, labels: ["a:b:c"], status: ["failed"] })).toEqual({
      status: ["failed"],
      labels: { a: "b:c" },
    });
  });
});

describe("what a person types", () => {
  it("may be a whole id", () => {
    expect(understand(ID.toUpperCase(), EVERYTHING)).toEqual({ kind: "job", id: ID });
  });
  it("may be the beginning of an id, which is a window of time", () => {
    const meant = understand("019a85c2-6b1e", EVERYTHING);
    const made = 0x019a85c26b1e;
    expect(meant.kind).toBe("filter");
    if (meant.kind !== "filter") return;
    expect(meant.filter.id).toBe("019a85c2-6b1e");
    const query = queryOf(meant.filter);
    expect(Date.parse(query.created_after ?? "")).toBeLessThan(made);
    expect(Date.parse(query.created_before ?? "")).toBeGreaterThan(made);
  });
  it("may be a label, a status, a queue or a name", () => {
    const filter = (text: string) => {
      const meant = understand(text, EVERYTHING);
      return meant.kind === "filter" ? meant.filter : null;
    };
    expect(filter("team:billing")?.labels).toEqual(["team:billing"]);
    expect(filter("failed")?.status).toEqual(["failed"]);
    expect(filter("queue:mail")?.queue).toBe("mail");
    expect(filter("<img src=x>")?.labels).toEqual(["<img src:x>"]);
    expect(filter("send invoice")?.name).toBe("send invoice");
    expect(understand("  ", EVERYTHING)).toEqual({ kind: "nothing" });
  });
  it("is no id if it would be of another age", () => {
    expect(windowOfId("deadbeef")).toBeNull();
  });
  it("shows at once which rows fit what is typed", () => {
    const job = { job_id: "019a-77", name: "Send-Mail", labels: { team: "red" } };
    for (const typed of ["", " mail ", "019A", "team=re", "team:red"])
      expect(resembles(job, typed)).toBe(true);
    for (const typed of ["invoice", "team:blue"]) expect(resembles(job, typed)).toBe(false);
  });
});
