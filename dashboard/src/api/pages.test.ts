import { expect, test } from "vitest";
import { type Page, readPage } from "./pages";

/** A server that finds something at some cursors only. */
function listOf(found: Record<number, string[]>, end: number) {
  const asked: (string | undefined)[] = [];
  const read = async (cursor: string | undefined): Promise<Page<string>> => {
    asked.push(cursor);
    const at = Number(cursor ?? 0);
    return { items: found[at] ?? [], next_cursor: at < end ? String(at + 1) : null };
  };
  return { asked, read };
}

test("empty pages are passed until something is found", async () => {
  const { asked, read } = listOf({ 3: ["a"] }, 9);
  expect(await readPage(read, undefined)).toEqual({ items: ["a"], next_cursor: "4" });
  expect(asked).toEqual([undefined, "1", "2", "3"]);
});

test("a page with something on it is shown at once", async () => {
  const { asked, read } = listOf({ 0: ["a"] }, 9);
  expect(await readPage(read, undefined)).toEqual({ items: ["a"], next_cursor: "1" });
  expect(asked.length).toBe(1);
});

test("a search that finds nothing for long is handed back with its cursor", async () => {
  const { asked, read } = listOf({}, 100);
  expect(await readPage(read, "10")).toEqual({ items: [], next_cursor: "18" });
  expect(asked.length).toBe(8);
});

test("the end is the end", async () => {
  const { read } = listOf({}, 2);
  expect(await readPage(read, undefined)).toEqual({ items: [], next_cursor: null });
});

test("cells that are away are not waited for", async () => {
  const away = { items: [], next_cursor: "1", missing_cells: ["b"] };
  expect(await readPage(async () => away, undefined)).toBe(away);
});
