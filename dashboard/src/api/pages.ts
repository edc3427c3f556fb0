// A page of a list: the server may end one early, when its budget is spent (docs/decisions/0025).

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** Calls for one page at most; then the user decides whether to search further. */
const LOOKS_MAX = 8;

/** Fetches a page; continues after an empty page that has a cursor. */
export async function readPage<P extends Page<unknown>>(
  read: (cursor: string | undefined) => Promise<P>,
  cursor: string | undefined,
): Promise<P> {
  let page = await read(cursor);
  for (let looks = 1; looks < LOOKS_MAX; looks++) {
    // While cells are missing, a gateway has no further items.
    if (page.items.length || page.next_cursor === null || "missing_cells" in page) break;
    page = await read(page.next_cursor);
  }
  return page;
}
