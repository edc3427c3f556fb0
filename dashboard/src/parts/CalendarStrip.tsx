// Past and coming instants of a schedule on a strip of days, marked by what became of them; days and
// times are those of the schedule's own zone.

import type { ForeseenView, OccurrenceView } from "../api/schema.gen";
import { SHAPES, toneOf } from "../lib/status";
import { inZone } from "../lib/time";

interface Mark {
  at: number;
  label: string;
  tone: string;
  shape: string;
}

const SHOWN_PER_DAY = 6;

export function CalendarStrip(props: {
  past: readonly OccurrenceView[];
  coming: readonly ForeseenView[];
  zone: string;
  now: number;
}) {
  const marks: Mark[] = [
    ...props.past.map((one) => ({
      at: Date.parse(one.at),
      label: `${one.outcome.replaceAll("_", " ")}${one.message ? `: ${one.message}` : ""}`,
      tone: toneOf(one.outcome),
      shape: SHAPES[toneOf(one.outcome)],
    })),
    ...props.coming.map((one) => ({
      at: Date.parse(one.at),
      label: one.note || "to come",
      tone: one.note ? "bad" : "busy",
      shape: one.note ? "⚑" : "◇",
    })),
  ];
  const days = daysOf(marks, props.zone);
  if (!days.length) return <p className="soft">No instants yet.</p>;
  const today = inZone(props.now, props.zone).day;
  return (
    <ol className="strip" tabIndex={0} aria-label={`Instants by day, ${props.zone}`}>
      {days.map(([day, found]) => (
        <li key={day} className={day === today ? "strip-day today" : "strip-day"}>
          <span className="strip-date">{dayWords(day)}</span>
          {found.slice(0, SHOWN_PER_DAY).map((mark) => (
            <span
              key={`${mark.at}${mark.shape}`}
              className={`strip-mark tone-${mark.tone}`}
              title={mark.label}
            >
              <span aria-hidden="true">{mark.shape}</span> {inZone(mark.at, props.zone).clock}
              <span className="hidden"> {mark.label}</span>
            </span>
          ))}
          {found.length > SHOWN_PER_DAY ? (
            <span className="soft small">+{found.length - SHOWN_PER_DAY} more</span>
          ) : null}
        </li>
      ))}
    </ol>
  );
}

export function daysOf(marks: readonly Mark[], zone: string): [string, Mark[]][] {
  const byDay = new Map<string, Mark[]>();
  for (const mark of [...marks].sort((one, other) => one.at - other.at)) {
    const { day } = inZone(mark.at, zone);
    byDay.set(day, [...(byDay.get(day) ?? []), mark]);
  }
  return [...byDay.entries()];
}

function dayWords(day: string): string {
  return new Date(`${day}T12:00:00Z`).toLocaleDateString(undefined, {
    weekday: "short",
    day: "numeric",
    month: "short",
    timeZone: "UTC",
  });
}
