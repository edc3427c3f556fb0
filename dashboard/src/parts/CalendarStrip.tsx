// Past and future instants of a schedule on a strip, marked by their outcome, in the schedule's
// own time zone.

import { useEffect, useRef } from "react";
import type { ForeseenView, OccurrenceView } from "../api/schema.gen";
import { cellsOf, type Mark, SHOWN_PER_CELL } from "../lib/calendarCells";
import { SHAPES, toneOf } from "../lib/status";
import { inZone } from "../lib/time";

export function CalendarStrip(props: {
  past: readonly OccurrenceView[];
  coming: readonly ForeseenView[];
  zone: string;
  now: number;
}) {
  const strip = useRef<HTMLOListElement>(null);
  const cells = cellsOf(
    [...props.past.map(pastMark), ...props.coming.map(comingMark)],
    props.zone,
    props.now,
  );
  const found = cells.length > 0;
  // First scrolls to the next instant and the one before it; then the user scrolls.
  useEffect(() => {
    const list = strip.current;
    const next = found && list?.querySelector<HTMLElement>("[data-next]");
    if (list && next) list.scrollLeft = next.offsetLeft - list.clientWidth / 2;
  }, [found]);
  if (!found) return <p className="soft">No run times yet.</p>;
  return (
    <ol className="strip" ref={strip} tabIndex={0} aria-label={`Run times, ${props.zone}`}>
      {cells.map((cell) => (
        <li
          key={cell.key}
          className={cell.isNow ? "strip-day today" : "strip-day"}
          data-next={cell.isNext || undefined}
        >
          <span className="strip-date">{cell.head}</span>
          {cell.marks.slice(0, SHOWN_PER_CELL).map((mark) => (
            <span
              key={`${mark.at}${mark.shape}`}
              className={`strip-mark tone-${mark.tone}`}
              title={mark.label}
            >
              <span aria-hidden="true">{mark.shape}</span> {inZone(mark.at, props.zone).clock}
              <span className="hidden"> {mark.label}</span>
            </span>
          ))}
          {cell.marks.length > SHOWN_PER_CELL ? (
            <span className="soft small">+{cell.marks.length - SHOWN_PER_CELL} more</span>
          ) : null}
        </li>
      ))}
    </ol>
  );
}

const pastMark = (one: OccurrenceView): Mark => ({
  at: Date.parse(one.at),
  label: `${one.outcome.replaceAll("_", " ")}${one.message ? `: ${one.message}` : ""}`,
  tone: toneOf(one.outcome),
  shape: SHAPES[toneOf(one.outcome)],
});

const comingMark = (one: ForeseenView): Mark => ({
  at: Date.parse(one.at),
  label: one.note || "to come",
  tone: one.note ? "bad" : "busy",
  shape: one.note ? "⚑" : "◇",
});
