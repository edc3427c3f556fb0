// Assigns overlapping time spans to rows, with as few rows as possible.

export interface Span {
  from: number;
  to: number;
}

export function lanes(spans: readonly Span[]): { places: number[]; count: number } {
  const order = spans
    .map((_, at) => at)
    .sort((a, b) => spanAt(spans, a).from - spanAt(spans, b).from);
  const ends: number[] = [];
  const places = new Array<number>(spans.length).fill(0);
  for (const at of order) {
    const span = spanAt(spans, at);
    let place = ends.findIndex((end) => end <= span.from);
    if (place < 0) {
      place = ends.length;
      ends.push(0);
    }
    ends[place] = Math.max(span.to, span.from + 1);
    places[at] = place;
  }
  return { places, count: ends.length };
}

const spanAt = (spans: readonly Span[], at: number): Span => spans[at] as Span;
