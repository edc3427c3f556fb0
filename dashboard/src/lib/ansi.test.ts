import { describe, expect, it } from "vitest";
import { pieces, plainText } from "./ansi";

const shown = (line: string) =>
  pieces(line)
    .map((one) => one.text)
    .join("");

describe("a line with escape sequences", () => {
  it("becomes pieces with the colours' names", () => {
    expect(pieces("a \u001b[31mred\u001b[0m b")).toEqual([
      { text: "a ", className: "" },
      { text: "red", className: "ansi-f1" },
      { text: " b", className: "" },
    ]);
  });
  it("knows bold, bright, background and the 256 colours", () => {
    expect(pieces("\u001b[1;92;44mx")[0]?.className).toBe("ansi-f10 ansi-b4 ansi-bold");
    expect(pieces("\u001b[38;5;196mx")[0]?.className).toBe("ansi-f9");
    expect(pieces("\u001b[38;2;0;0;255mx")[0]?.className).toBe("ansi-f12");
  });
  it("leaves out what moves the cursor, sets titles or makes links", () => {
    expect(shown("\u001b[2K\u001b[1Gdone\u001b]0;title\u0007!\u001b]8;;http://x\u001b\\link")).toBe(
      "done!link",
    );
  });
  it("keeps the last of what was written over", () => {
    expect(shown("10 %\r50 %\r100 %\r")).toBe("100 %");
  });
  it("writes out control characters and marks that turn text around", () => {
    expect(shown("a\u0000b\u202ec")).toBe("a\ufffdb\ufffdc");
  });
  it("never makes markup", () => {
    expect(shown("<img src=x onerror=alert(1)>")).toBe("<img src=x onerror=alert(1)>");
  });
  it("can be left out", () => {
    expect(plainText("\u001b[31mred\u001b[0m\nplain")).toBe("red\nplain");
  });
});
