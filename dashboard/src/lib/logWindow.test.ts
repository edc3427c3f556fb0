import { describe, expect, it } from "vitest";
import { LogWindow } from "./logWindow";

const bytes = (text: string) => new TextEncoder().encode(text);

function linesOf(log: LogWindow): string[] {
  return Array.from({ length: log.lines }, (_, at) => log.line(at));
}

describe("a window of a log", () => {
  it("counts lines, the last one too if it has text", () => {
    const log = new LogWindow();
    log.append(bytes("one\ntwo\n"));
    expect(log.lines).toBe(2);
    log.append(bytes("three"));
    expect(linesOf(log)).toEqual(["one", "two", "three"]);
  });

  it("joins a line that came in several pieces, and letters cut in half", () => {
    const log = new LogWindow();
    const whole = bytes("grüße\nähm\n");
    for (const at of whole.keys()) log.append(whole.subarray(at, at + 1));
    expect(linesOf(log)).toEqual(["grüße", "ähm"]);
  });

  it("grows at the front without losing what was there", () => {
    const text = "first\nsecond\nthird\nfourth\n";
    const log = new LogWindow(15);
    log.append(bytes(text.slice(15)));
    const added = log.prepend(bytes(text.slice(4, 15)));
    expect(log.start).toBe(4);
    expect(added).toBe(2);
    log.prepend(bytes(text.slice(0, 4)));
    expect(linesOf(log)).toEqual(["first", "second", "third", "fourth"]);
  });

  it("is the same however it was cut, by any pieces at both ends", () => {
    const text = Array.from({ length: 200 }, (_, at) => `${"x".repeat(at % 17)}${at}`).join("\n");
    const whole = bytes(text);
    for (const size of [1, 3, 7, 64, 1000]) {
      const middle = Math.floor(whole.length / 2);
      const log = new LogWindow(middle);
      for (let at = middle; at < whole.length; at += size)
        log.append(whole.subarray(at, Math.min(at + size, whole.length)));
      for (let at = middle; at > 0; at -= size)
        log.prepend(whole.subarray(Math.max(0, at - size), at));
      expect(linesOf(log).join("\n")).toBe(text);
    }
  });

  it("cuts a line without end for display", () => {
    const log = new LogWindow();
    log.append(bytes("x".repeat(100_000)));
    expect(log.line(0).length).toBeLessThan(4_100);
    expect(log.line(0)).toContain("100000 bytes");
  });

  it("takes a hundred megabytes, and any line of them is at hand", () => {
    const block = bytes(
      `${"a line of a log that is not very long, as most are in life".padEnd(63)}\n`.repeat(16_384),
    );
    const log = new LogWindow();
    for (let at = 0; at < 100; at += 1) log.append(block);
    expect(log.size).toBeGreaterThanOrEqual(100 * 1024 * 1024);
    expect(log.lines).toBe(100 * 16_384);
    expect(log.line(1_000_000)).toContain("a line of a log");
    expect(log.find("not there", 0, 10_000)).toBe(-1);
  });
});
