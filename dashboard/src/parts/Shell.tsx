// The frame of every page: navigation, connection state, session, keyboard shortcuts.

import { type FormEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { call } from "../api/client";
import { useSession } from "../api/session";
import { useLine } from "../api/use";
import { EVERYTHING, understand, writeFilter } from "../lib/filter";
import { go, pageOf, usePlace } from "../lib/router";
import { applyTheme, readTheme, type Theme } from "../lib/theme";
import { Link } from "./basics";
import { Dialog } from "./Dialog";

const PAGES = [
  { to: pageOf.overview, name: "Overview", key: "o", icon: "◎" },
  { to: pageOf.jobs(), name: "Jobs", key: "j", icon: "▤" },
  { to: pageOf.deadLetters, name: "Dead letters", key: "d", icon: "▲" },
  { to: pageOf.workers, name: "Workers", key: "w", icon: "▦" },
  { to: pageOf.timeline, name: "Timeline", key: "t", icon: "▬" },
  { to: pageOf.queues, name: "Queues", key: "q", icon: "≡" },
  { to: pageOf.schedules, name: "Schedules", key: "s", icon: "◷" },
  { to: pageOf.triggers, name: "Triggers", key: "e", icon: "⚡" },
  { to: pageOf.alerts, name: "Alerts", key: "a", icon: "◈" },
  { to: pageOf.simulate, name: "Simulate", key: "m", icon: "⇄" },
  { to: pageOf.settings, name: "Settings", key: "c", icon: "⚙" },
] as const;

export function Shell(props: { children: ReactNode; onSignOut: () => void }) {
  const { path } = usePlace();
  const [help, setHelp] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  const pages = useRef<HTMLElement>(null);
  useShortcuts(search, setHelp);
  // On a phone the navigation scrolls: the current page must be visible.
  // biome-ignore lint/correctness/useExhaustiveDependencies: whenever another page is shown
  useEffect(() => {
    const strip = pages.current;
    const here = strip?.querySelector<HTMLElement>("[aria-current]");
    if (strip && here) strip.scrollLeft = here.offsetLeft - strip.clientWidth / 3;
  }, [path]);
  const isHere = (to: string) => (to === "/" ? path === "/" : path.startsWith(to));
  return (
    <div className="shell">
      <a className="skip" href="#main">
        Skip to content
      </a>
      <header className="top">
        <Link to="/" className="brand" aria-label="Rota: overview">
          <img src="/static/icon.svg" alt="" width="22" height="22" /> Rota
        </Link>
        <Search input={search} />
        <LiveMark />
        <ThemeButton />
        <Person onSignOut={props.onSignOut} />
      </header>
      <nav className="side" aria-label="Pages" ref={pages}>
        {PAGES.map((page) => (
          <Link key={page.name} to={page.to} aria-current={isHere(page.to) ? "page" : undefined}>
            <span className="nav-icon" aria-hidden="true">
              {page.icon}
            </span>
            {page.name}
          </Link>
        ))}
        <span className="spring" />
        <a href="/docs">API</a>
        <button type="button" className="quiet nav-help" onClick={() => setHelp(true)}>
          Keys <kbd>?</kbd>
        </button>
      </nav>
      <main id="main" tabIndex={-1}>
        {props.children}
      </main>
      {help ? <Keys onClose={() => setHelp(false)} /> : null}
    </div>
  );
}

function Search(props: { input: React.RefObject<HTMLInputElement | null> }) {
  const [text, setText] = useState("");
  const find = (event: FormEvent) => {
    event.preventDefault();
    const meant = understand(text, EVERYTHING);
    if (meant.kind === "job") go(pageOf.job(meant.id));
    if (meant.kind === "filter") go(pageOf.jobs(writeFilter(meant.filter).toString()));
    setText("");
    // Gives the keyboard back to the page.
    props.input.current?.blur();
  };
  return (
    <form className="search" onSubmit={find} role="search">
      <input
        ref={props.input}
        type="search"
        value={text}
        onChange={(event) => setText(event.target.value)}
        placeholder="Find jobs: id, name, key:value"
        aria-label="Find jobs by id, name, or label as key:value"
        spellCheck={false}
        autoComplete="off"
      />
      <kbd aria-hidden="true">/</kbd>
    </form>
  );
}

function LiveMark() {
  const state = useLine();
  const words = { connecting: "connecting", live: "live", lost: "reconnecting" };
  const tones = { connecting: "wait", live: "good", lost: "bad" };
  const shapes = { connecting: "○", live: "●", lost: "▲" };
  return (
    <span className={`live tone-${tones[state]}`} role="status">
      <span aria-hidden="true">{shapes[state]}</span> {words[state]}
    </span>
  );
}

const NEXT: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
const FACES: Record<Theme, string> = { auto: "◐", light: "☀", dark: "☾" };

function ThemeButton() {
  const [theme, setTheme] = useState(readTheme);
  const turn = () => {
    const next = NEXT[theme];
    applyTheme(next);
    setTheme(next);
  };
  return (
    <button
      type="button"
      className="quiet"
      onClick={turn}
      aria-label={`Theme: ${theme}`}
      title={`Theme: ${theme}`}
    >
      {FACES[theme]}
    </button>
  );
}

function Person(props: { onSignOut: () => void }) {
  const session = useSession();
  const out = async () => {
    await call("DELETE /session");
    props.onSignOut();
  };
  return (
    <span className="person">
      <span
        className="soft"
        title={`role ${session.role}${session.tenant ? `, tenant ${session.tenant}` : ""}`}
      >
        {session.name || "no name"}
        <span className="role"> {session.role}</span>
      </span>
      <button type="button" className="quiet" onClick={() => void out()}>
        Sign out
      </button>
    </span>
  );
}

function useShortcuts(
  search: React.RefObject<HTMLInputElement | null>,
  setHelp: (open: boolean) => void,
): void {
  useEffect(() => {
    let leader = 0;
    const press = (event: KeyboardEvent) => {
      const element = event.target as HTMLElement;
      const typing = element.matches("input, textarea, select, [contenteditable]");
      if (event.key === "Escape" && typing) element.blur();
      if (typing || event.metaKey || event.ctrlKey || event.altKey) return;
      if (document.querySelector("dialog[open]")) return;
      if (event.key === "/") search.current?.focus();
      else if (event.key === "?") setHelp(true);
      else if (event.key === "g") {
        leader = Date.now();
        return;
      } else if (event.key === "j" && element === document.body && !leader)
        document.querySelector<HTMLElement>("tbody tr")?.focus();
      else {
        const page = PAGES.find((one) => one.key === event.key);
        if (!page || Date.now() - leader > 1500) return;
        go(page.to);
      }
      leader = 0;
      event.preventDefault();
    };
    // In the capture phase, before a table handles the key.
    document.addEventListener("keydown", press, true);
    return () => document.removeEventListener("keydown", press, true);
  }, [search, setHelp]);
}

function Keys(props: { onClose: () => void }) {
  const rows: [string, string][] = [
    ["/", "find jobs"],
    ["j  k", "next and previous row"],
    ["Enter", "open the row"],
    ["x", "select the row"],
    ...PAGES.map((page): [string, string] => [`g ${page.key}`, page.name]),
    ["?", "show this list"],
    ["Esc", "close, or leave a field"],
  ];
  return (
    <Dialog title="Keys" onClose={props.onClose}>
      <table className="keys">
        <tbody>
          {rows.map(([keys, what]) => (
            <tr key={keys}>
              <td>
                {keys.split(/\s+/).map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </td>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Dialog>
  );
}
