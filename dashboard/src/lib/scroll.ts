// Which rows of a long list are on screen. Browsers bound how tall an element can be, so beyond
// that the scroll bar stands for more rows than its pixels.

export const TALLEST_PX = 8_000_000;

export interface Sight {
  first: number;
  last: number;
  /** The height to give the whole, and where to put the first row. */
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

/** Where to scroll so that a row is in the middle. */
export function scrollTo(row: number, rows: number, rowPx: number, viewPx: number): number {
  const whole = rows * rowPx;
  if (whole <= TALLEST_PX) return Math.max(0, row * rowPx - viewPx / 2);
  const shown = Math.ceil(viewPx / rowPx) + 1;
  const share = Math.min(1, Math.max(0, (row - shown / 2) / Math.max(1, rows - shown + 1)));
  return share * (TALLEST_PX - viewPx);
}
