import { describe, expect, it } from "vitest";
import { splitWords } from "../parts/ScheduleForm";
import { bulkLine, curlOf, rotaLine } from "./commands";
import { cronWords } from "./cronText";
import { errorLine, quote, rateWords, taskLine } from "./format";
import { ago, inZone, length } from "./time";

describe("cron in words", () => {
  it.each([
    ["0 9 * * MON-FRI", "Europe/Berlin", "at 09:00, Monday to Friday, Berlin"],
    ["*/15 * * * *", "UTC", "every 15 minutes, every day, UTC"],
    ["0 3 * * *", "UTC", "at 03:00, every day, UTC"],
    ["30 22 L * *", "America/New_York", "at 22:30, on the last day of the month, New York"],
    ["0 0 1 1,7 *", "UTC", "at 00:00, on the 1, in January and July, UTC"],
    ["0 9,18 * * 1,3", "UTC", "at 09:00 and 18:00, Monday and Wednesday, UTC"],
    ["5 * * * *", "UTC", "every hour at :05, every day, UTC"],
    ["*/10 * * * * *", "UTC", "every 10 seconds, every day, UTC"],
    ["@daily", "UTC", "every day at 00:00, UTC"],
  ])("%s", (cron, zone, words) => expect(cronWords(cron, zone)).toBe(words));

  it.each(["", "1 2 3", "0 9 * * FOO", "H H * * *", "0 9 15W * *"])("says nothing of %s", (cron) =>
    expect(cronWords(cron)).toBeNull(),
  );
});

describe("lengths of time", () => {
  it.each([
    [0, "0 s"],
    [0.0004, "<1 ms"],
    [0.25, "250 ms"],
    [9.96, "10 s"],
    [61, "1 min 1 s"],
    [3600, "1 h"],
    [90_061, "1 d 1 h"],
    [null, "–"],
  ])("%s", (seconds, words) => expect(length(seconds)).toBe(words));

  it("says how long ago and how soon", () => {
    const now = Date.parse("2026-01-01T12:00:00Z");
    expect(ago("2026-01-01T11:58:00Z", now)).toBe("2 min ago");
    expect(ago("2026-01-01T15:00:00Z", now)).toBe("in 3 h");
  });
  it("shows a zone's own clock", () => {
    const time = Date.parse("2026-07-01T22:30:00Z");
    expect(inZone(time, "Europe/Berlin")).toEqual({ day: "2026-07-02", clock: "00:30" });
  });
});

describe("the same elsewhere", () => {
  it("quotes what a shell would take apart", () => {
    expect(quote("a b")).toBe("'a b'");
    expect(quote("it's")).toBe(`'it'\\''s'`);
    expect(rotaLine("retry", "019a-b")).toBe("rota retry 019a-b");
    expect(rotaLine("workers", "drain", "$(reboot)")).toBe("rota workers drain '$(reboot)'");
  });
  it("names a bulk action's filter", () => {
    const filter = { status: "failed", name: "a b", labels: { team: "x" } } as const;
    expect(bulkLine("retry", filter)).toBe(
      "rota bulk retry --status failed --name 'a b' --label team=x",
    );
    expect(bulkLine("cancel", {})).toBe("rota bulk cancel --all");
  });
  it("makes a curl line without the token", () => {
    const line = curlOf(
      { call: "PUT /jobs/{job_id}/cancel", asked: { path: { job_id: "1" } }, rota: "" },
      "http://h",
    );
    expect(line.replace(/\s*\\\n\s*/g, " ")).toBe(
      'curl -X PUT -H "Authorization: Bearer $ROTA_TOKEN" http://h/jobs/1/cancel',
    );
  });
  it("cuts a command into words as a shell does", () => {
    expect(splitWords(`sh -c "echo \\"a b\\"" 'c d' e`)).toEqual([
      "sh",
      "-c",
      'echo "a b"',
      "c d",
      "e",
    ]);
  });
});

describe("tasks and errors in a line", () => {
  it("shows each kind", () => {
    expect(taskLine({ kind: "command", argv: ["sh", "-c", "a b"] })).toBe("sh -c 'a b'");
    expect(taskLine({ kind: "python", entry: "m:f" })).toBe("m:f");
    expect(taskLine(null)).toBe("function");
  });
  it("shows errors of any shape", () => {
    expect(errorLine({ type: "ValueError", message: "bad" })).toBe("ValueError: bad");
    expect(errorLine("plain")).toBe("plain");
    expect(errorLine({ code: 3 })).toBe('{"code":3}');
  });
});

describe("a rate", () => {
  it("is told by the minute where it is small, and not at all where it is unknown", () => {
    expect([null, 0, 0.05, 0.52, 12_345].map(rateWords)).toEqual([
      "–",
      "0",
      "3.0 a min",
      "0.5",
      "12.3K",
    ]);
  });
});
