// Log viewer: opens at the end, follows new lines, and renders only visible lines.

import { useCallback, useEffect, useMemo, useReducer, useRef, useState } from "react";
import { LogReader } from "../api/logs";
import { pieces } from "../lib/ansi";
import { bytes, count, plural } from "../lib/format";
import { inSight, scrollTo } from "../lib/scroll";
import { Empty, Loading, Trouble } from "./basics";

const ROW_PX = 19;
const NEAR_PX = 400;
/** Lines searched without a pause for the page. */
const SEARCH_LINES = 20_000;

export function LogView(props: { executionId: string; live: boolean; fileName: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const [view, setView] = useState({ top: 0, height: 400 });
  const [follow, setFollow] = useState(true);
  const following = useRef(true);
  following.current = follow;

  const reader = useLog(props.executionId, props.live, redraw, (shift) => {
    // Lines added before the visible ones move these down: scroll by the same amount.
    if (shift && box.current) box.current.scrollTop += shift * ROW_PX;
  });
  const log = reader.window;
  const rows = log.lines;
  const sight = inSight(rows, ROW_PX, view.top, view.height);

  // biome-ignore lint/correctness/useExhaustiveDependencies: whenever lines come
  useEffect(() => {
    const element = box.current;
    if (element && following.current) element.scrollTop = element.scrollHeight;
  }, [rows]);

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const sized = new ResizeObserver(() =>
      setView((old) => ({ ...old, height: element.clientHeight })),
    );
    sized.observe(element);
    return () => sized.disconnect();
  }, []);

  const scrolled = () => {
    const element = box.current;
    if (!element) return;
    setView({ top: element.scrollTop, height: element.clientHeight });
    const end = element.scrollHeight - element.clientHeight - element.scrollTop < ROW_PX * 2;
    if (end !== following.current) setFollow(end);
    if (element.scrollTop < NEAR_PX && !reader.atStart) void reader.earlier();
  };
  const jump = useCallback(
    (row: number) => {
      const element = box.current;
      if (!element) return;
      setFollow(false);
      element.scrollTop = scrollTo(row, reader.window.lines, ROW_PX, element.clientHeight);
    },
    [reader],
  );
  const search = useSearchIn(reader, jump);
  const download = `/executions/${encodeURIComponent(props.executionId)}/logs`;
  return (
    <div className="log">
      <div className="log-bar">
        <input
          type="search"
          placeholder="Search the log"
          aria-label="Search the log"
          value={search.text}
          onChange={(event) => search.setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter") search.next(event.shiftKey ? -1 : 1);
          }}
        />
        <span className="soft small" role="status">
          {search.said}
        </span>
        <span className="spring" />
        <label className="check">
          <input
            type="checkbox"
            checked={follow}
            onChange={(event) => {
              setFollow(event.target.checked);
              if (event.target.checked && box.current)
                box.current.scrollTop = box.current.scrollHeight;
            }}
          />
          Follow
        </label>
        <button
          type="button"
          className="small"
          disabled={reader.atStart && view.top === 0}
          onClick={() => {
            setFollow(false);
            if (box.current) box.current.scrollTop = 0;
          }}
        >
          Top
        </button>
        <a className="button small" href={download} download={props.fileName}>
          Download
        </a>
        <span className="soft small number">{bytes(reader.size)}</span>
      </div>
      <Trouble error={reader.trouble} />
      <div
        className="log-box"
        ref={box}
        onScroll={scrolled}
        tabIndex={0}
        role="log"
        aria-label="Log"
        aria-live="off"
      >
        {rows === 0 ? (
          reader.state === "loading" ? (
            <Loading what="the log" />
          ) : (
            <Empty title={props.live ? "No output yet." : "No output."} />
          )
        ) : (
          <div className="log-all" style={{ height: sight.height }}>
            <div className="log-lines" style={{ transform: `translateY(${sight.top}px)` }}>
              {range(sight.first, sight.last).map((row) => (
                <Line
                  key={row}
                  text={log.line(row)}
                  number={reader.atStart ? row + 1 : null}
                  found={row === search.row}
                  wanted={search.wanted}
                />
              ))}
            </div>
          </div>
        )}
      </div>
      <div className="log-foot soft small">
        <span>
          {plural(rows, "line")}
          {reader.atStart ? "" : ` of the end; ${bytes(log.start)} before them: scroll up`}
        </span>
        <span>{STATES[reader.state]}</span>
      </div>
    </div>
  );
}

const STATES = { loading: "loading", following: "live", ended: "ended", lost: "connection lost" };

function useLog(
  executionId: string,
  live: boolean,
  redraw: () => void,
  shifted: (lines: number) => void,
): LogReader {
  const shift = useRef(shifted);
  shift.current = shifted;
  const reader = useMemo(() => {
    let waiting = false;
    // A log may grow thousands of times a second; the screen shows sixty frames.
    const notify = (lines: number) => {
      if (lines) shift.current(lines);
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        redraw();
      });
    };
    return new LogReader(executionId, live, notify);
  }, [executionId, live, redraw]);
  useEffect(() => {
    void reader.open();
    return () => reader.close();
  }, [reader]);
  return reader;
}

/** Searches loaded lines and, if needed, fetches the rest, without blocking the page. */
function useSearchIn(reader: LogReader, jump: (row: number) => void) {
  const [text, setText] = useState("");
  const [row, setRow] = useState(-1);
  const [said, setSaid] = useState("");
  const run = useRef(0);
  const wanted = text.trim().toLowerCase();

  const next = useCallback(
    async (by: 1 | -1) => {
      if (!wanted) return;
      run.current += 1;
      const mine = run.current;
      const log = () => reader.window;
      let at = row < 0 ? log().lines - 1 : row + by;
      for (;;) {
        if (mine !== run.current) return;
        const found = findNear(log(), wanted, at, by);
        if (found.row >= 0) {
          setRow(found.row);
          setSaid(`line ${count(found.row + 1)}`);
          jump(found.row);
          return;
        }
        at = found.at;
        if (by < 0 && at < 0 && !reader.atStart) {
          setSaid(`searching… ${bytes(log().start)} to go`);
          at = (await reader.earlier()) - 1;
        } else if (at < 0 || at >= log().lines) {
          setSaid("no more matches");
          return;
        }
        await new Promise((resolve) => setTimeout(resolve));
      }
    },
    [wanted, row, reader, jump],
  );
  return {
    text,
    row,
    said,
    wanted,
    next: (by: 1 | -1) => void next(by === 1 && row < 0 ? -1 : by),
    setText: (typed: string) => {
      run.current += 1;
      setText(typed);
      setRow(-1);
      setSaid(typed ? "Enter: last match; Shift+Enter: previous match" : "");
    },
  };
}

function findNear(
  log: LogReader["window"],
  text: string,
  from: number,
  by: 1 | -1,
): { row: number; at: number } {
  const end = from + by * SEARCH_LINES;
  let at = from;
  for (; at !== end && at >= 0 && at < log.lines; at += by)
    if (log.find(text, at, at + 1) >= 0) return { row: at, at };
  return { row: -1, at };
}

function range(from: number, to: number): number[] {
  return Array.from({ length: Math.max(0, to - from) }, (_, at) => from + at);
}

function Line(props: { text: string; number: number | null; found: boolean; wanted: string }) {
  return (
    <div className={props.found ? "log-line found" : "log-line"}>
      {props.number === null ? null : <span className="log-number">{props.number}</span>}
      <span className="log-text">
        {pieces(props.text).map((piece, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of a line do not move
          <span key={at} className={piece.className}>
            {marked(piece.text, props.wanted)}
          </span>
        ))}
      </span>
    </div>
  );
}

function marked(text: string, wanted: string) {
  if (!wanted) return text;
  const at = text.toLowerCase().indexOf(wanted);
  if (at < 0) return text;
  return (
    <>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + wanted.length)}</mark>
      {text.slice(at + wanted.length)}
    </>
  );
}
