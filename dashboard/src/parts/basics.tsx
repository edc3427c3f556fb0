// Basic components: links, statuses, times, panels, empty states, errors.

import { type AnchorHTMLAttributes, type MouseEvent, type ReactNode, useState } from "react";
import type { Problem } from "../api/client";
import { useNow } from "../lib/clock";
import { go } from "../lib/router";
import { noteBeside, SHAPES, type Tone, toneOf } from "../lib/status";
import { ago, between, exact, length } from "../lib/time";

export function Link(props: { to: string } & AnchorHTMLAttributes<HTMLAnchorElement>) {
  const { to, onClick, ...rest } = props;
  const follow = (event: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(event);
    // The browser handles clicks that open a new tab or window.
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey)
      return;
    event.preventDefault();
    go(to);
  };
  return <a {...rest} href={to} onClick={follow} />;
}

export function Status(props: { of: string; note?: string | null | undefined }) {
  const tone = toneOf(props.of);
  const note = noteBeside(props.of, props.note);
  return (
    <span className={`status tone-${tone}`}>
      <span aria-hidden="true" className="shape">
        {SHAPES[tone]}
      </span>
      {props.of.replaceAll("_", " ")}
      {note ? <span className="note"> {note}</span> : null}
    </span>
  );
}

export function Ago(props: { time: string | null | undefined }) {
  const now = useNow();
  if (!props.time) return <span className="soft">–</span>;
  return (
    <time dateTime={props.time} title={exact(props.time)}>
      {ago(props.time, now)}
    </time>
  );
}

/** A duration, up to now if it has not ended. */
export function Took(props: { from: string | null | undefined; to?: string | null | undefined }) {
  const now = useNow();
  return <span className="number">{length(between(props.from, props.to, now))}</span>;
}

export function Panel(props: {
  title?: ReactNode;
  acts?: ReactNode;
  children: ReactNode;
  className?: string;
  label?: string;
}) {
  return (
    <section className={`panel ${props.className ?? ""}`} aria-label={props.label}>
      {props.title || props.acts ? (
        <div className="panel-head">
          <h2>{props.title}</h2>
          <div className="acts">{props.acts}</div>
        </div>
      ) : null}
      {props.children}
    </section>
  );
}

export function PageHead(props: { title: ReactNode; children?: ReactNode; sub?: ReactNode }) {
  return (
    <div className="page-head">
      <div className="page-title">
        <h1>{props.title}</h1>
        {props.sub ? <div className="sub">{props.sub}</div> : null}
      </div>
      <div className="acts">{props.children}</div>
    </div>
  );
}

/** An empty state, with the next step. */
export function Empty(props: { title: string; children?: ReactNode; command?: string }) {
  return (
    <div className="empty">
      <p className="empty-title">{props.title}</p>
      {props.children ? <div>{props.children}</div> : null}
      {props.command ? <Command text={props.command} /> : null}
    </div>
  );
}

/** Shown by a gateway for data that belongs to one cell; not an error. */
function CellsOwn() {
  return (
    <p className="note-bar">
      Not available through a gateway: open the dashboard of one of the cell's servers.
    </p>
  );
}

export function Trouble(props: { error: Problem | Error | null | undefined }) {
  if (!props.error) return null;
  if ("code" in props.error && props.error.code.endsWith(":ask_the_cell")) return <CellsOwn />;
  const fields = "fields" in props.error ? props.error.fields : [];
  return (
    <div className="trouble" role="alert">
      <strong>{hint(props.error)}</strong> {props.error.message}
      {fields.length ? (
        <ul>
          {fields.map((one) => (
            <li key={one.field + one.message}>
              <code>{one.field}</code> {one.message}
            </li>
          ))}
        </ul>
      ) : null}
    </div>
  );
}

function hint(error: Problem | Error): string {
  const status = "status" in error ? error.status : -1;
  if (status === 0) return "No connection.";
  if (status === 403) return "Not allowed.";
  if (status === 404) return "Not found.";
  if (status === 409) return "Conflict with the current state.";
  if (status === 429) return "Too many requests.";
  if (status === 503) return "Not available now.";
  return "The request failed.";
}

export function Loading(props: { what?: string }) {
  return (
    <p className="loading" role="status">
      Loading{props.what ? ` ${props.what}` : ""}…
    </p>
  );
}

export function Copy(props: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await copyText(props.text);
    setDone(true);
    setTimeout(() => setDone(false), 1200);
  };
  return (
    <button type="button" className="quiet small" onClick={copy} title="Copy">
      {done ? "copied" : (props.label ?? "copy")}
    </button>
  );
}

async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Without HTTPS pages have no clipboard API, but the browser can copy selected text.
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function Command(props: { text: string }) {
  return (
    <div className="command">
      <pre>{props.text}</pre>
      <Copy text={props.text} />
    </div>
  );
}

export function Facts(props: { items: readonly (readonly [string, ReactNode])[] }) {
  const shown = props.items.filter(
    ([, value]) => value !== null && value !== undefined && value !== "",
  );
  return (
    <dl className="facts">
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Meter(props: { label: string; used: number; capacity: number; text: string }) {
  const share = props.capacity > 0 ? Math.min(1, props.used / props.capacity) : 0;
  const tone: Tone = share >= 0.9 ? "wait" : "busy";
  return (
    <div className="meter">
      <span className="meter-label">{props.label}</span>
      <svg
        className="meter-bar"
        viewBox="0 0 100 8"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${props.label}: ${Math.round(share * 100)} % used`}
      >
        <rect className="track" width="100" height="8" rx="2" />
        <rect className={`fill tone-${tone}`} width={share * 100} height="8" rx="2" />
      </svg>
      <span className="meter-text number">{props.text}</span>
    </div>
  );
}
