// A page of a list as it is shown: the server may end one early, when it has looked long enough.

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** Calls for one page at most; then it is for the reader to say whether to look further. */
const LOOKS_MAX = 8;

/** An empty page with a cursor is no answer yet: goes on from there. */
export async function readPage<P extends Page<unknown>>(
  read: (cursor: string | undefined) => Promise<P>,
  cursor: string | undefined,
): Promise<P> {
  let page = await read(cursor);
  for (let looks = 1; looks < LOOKS_MAX; looks++) {
    // A gateway without some of its cells has nothing more to tell until they are back.
    if (page.items.length || page.next_cursor === null || "missing_cells" in page) break;
    page = await read(page.next_cursor);
  }
  return page;
}
