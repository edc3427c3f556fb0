// Virtual scrolling: which rows of a long list are visible. Browsers limit the height of an element, so beyond
// that one pixel of the scroll bar stands for several rows.

export const TALLEST_PX = 8_000_000;

export interface Sight {
  first: number;
  last: number;
  /** The height of the list, and the position of the first visible row. */
  height: number;
  top: number;
}

export function inSight(rows: number, rowPx: number, scrollTop: number, viewPx: number): Sight {
  const whole = rows * rowPx;
  const height = Math.min(whole, TALLEST_PX);
  const shown = Math.ceil(viewPx / rowPx) + 1;
  if (whole <= TALLEST_PX) {
    const first = Math.max(0, Math.min(rows - 1, Math.floor(scrollTop / rowPx)));
    return { first, last: Math.min(rows, first + shown), height, top: first * rowPx };
  }
  const share = Math.min(1, Math.max(0, scrollTop / Math.max(1, height - viewPx)));
  const first = Math.round(share * Math.max(0, rows - shown + 1));
  return { first, last: Math.min(rows, first + shown), height, top: scrollTop };
}

/** The scroll position that shows a row in the middle. */
export function scrollTo(row: number, rows: number, rowPx: number, viewPx: number): number {
  const whole = rows * rowPx;
  if (whole <= TALLEST_PX) return Math.max(0, row * rowPx - viewPx / 2);
  const shown = Math.ceil(viewPx / rowPx) + 1;
  const share = Math.min(1, Math.max(0, (row - shown / 2) / Math.max(1, rows - shown + 1)));
  return share * (TALLEST_PX - viewPx);
}
