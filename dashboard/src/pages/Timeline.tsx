// Timeline: executions on each worker over time, and reservations.

import { useMemo } from "react";
import type { BarView } from "../api/schema.gen";
import { useCall } from "../api/use";
import { useNow } from "../lib/clock";
import { count, shortId } from "../lib/format";
import { setSearch, useSearch } from "../lib/router";
import { bucketSummary, cellsOf } from "../lib/timelineBuckets";
import { Empty, Loading, PageHead, Panel, Trouble } from "../parts/basics";
import { Gantt, type Lane, RESERVED } from "../parts/Gantt";

const WINDOWS: readonly [string, number][] = [
  ["5 min", 5 * 60_000],
  ["30 min", 30 * 60_000],
  ["1 h", 3_600_000],
  ["6 h", 6 * 3_600_000],
  ["24 h", 24 * 3_600_000],
];

/** Canvases are limited in height. */
const LANES_MAX = 1_000;

export function Timeline() {
  const search = useSearch();
  const now = useNow();
  const after = search.get("after");
  const before = search.get("before");
  const span = WINDOWS.find(([name]) => name === search.get("span"))?.[1] ?? 30 * 60_000;
  const fixed = after !== null && before !== null;
  // The window moves in steps, so that repeated queries are equal and can be cached.
  const step = Math.max(2_000, span / 200);
  const end = fixed ? Date.parse(before) : Math.ceil(now / step) * step;
  const start = fixed ? Date.parse(after) : end - span;
  const only = search.get("worker") ?? "";
  const query = {
    after: new Date(start).toISOString(),
    before: new Date(end).toISOString(),
    worker_id: only,
  };
  const found = useCall("GET /timeline", { query }, { every: 2_000, keep: true });
  const workers = useCall("GET /workers", { query: { limit: LANES_MAX } }, { every: 10_000 });
  const lanes = useMemo<Lane[]>(() => {
    const known = new Map<string, Lane>();
    for (const worker of workers.data?.items ?? [])
      if (worker.status !== "offline" && (!only || worker.worker_id === only))
        known.set(worker.worker_id, { worker_id: worker.worker_id, name: worker.name, bars: [] });
    const names = new Map(workers.data?.items.map((one) => [one.worker_id, one.name]));
    const kept = (found.data?.reserved ?? []).map((one) => ({ ...one, status: RESERVED }));
    const laneOf = (id: string): Lane => {
      const lane = known.get(id) ?? { worker_id: id, name: names.get(id) ?? shortId(id), bars: [] };
      known.set(id, lane);
      return lane;
    };
    for (const bar of [...(found.data?.items ?? []), ...kept]) laneOf(bar.worker_id).bars.push(bar);
    if (found.data?.crowd) {
      const [from, to] = [Date.parse(found.data.start), Date.parse(found.data.end)];
      for (const [id, cells] of cellsOf(found.data.crowd, from, to)) laneOf(id).cells = cells;
    }
    return [...known.values()].sort((one, other) => one.name.localeCompare(other.name));
  }, [found.data, workers.data, only]);
  /** Start of the newest executions: running ones may be older. */
  const closer = (bars: readonly BarView[]) => {
    const ended = bars.filter((bar) => bar.end !== null).map((bar) => Date.parse(bar.start));
    setSearch({
      after: new Date(Math.min(...ended, end - 1_000)).toISOString(),
      before: new Date(end).toISOString(),
    });
  };
  // Reservations lie in the future: the picture extends to them, by its own length at most.
  const ends = fixed ? [] : (found.data?.reserved ?? []).map((one) => Date.parse(one.end) - end);
  const ahead = Math.min(span, Math.max(0, ...ends));
  return (
    <>
      <PageHead title="Timeline" sub="executions on each worker, and reservations">
        <div className="segments" role="group" aria-label="Time range">
          {WINDOWS.map(([name, length]) => (
            <button
              key={name}
              type="button"
              aria-pressed={!fixed && span === length}
              onClick={() => setSearch({ span: name, after: "", before: "" })}
            >
              {name}
            </button>
          ))}
        </div>
      </PageHead>
      <Trouble error={found.error} />
      {only ? (
        <p>
          <button type="button" className="chip on" onClick={() => setSearch({ worker: "" })}>
            {lanes[0]?.name ?? shortId(only)} <span aria-hidden="true">✕</span>
            <span className="hidden">show all workers</span>
          </button>
        </p>
      ) : null}
      {lanes.length > LANES_MAX ? (
        <p className="note-bar">
          The first {count(LANES_MAX)} of {count(lanes.length)} workers are drawn.
        </p>
      ) : null}
      {found.data?.crowd ? (
        <p className="note-bar" role="status">
          {bucketSummary(found.data.crowd, found.data.items.length, found.data.running ?? 0)}
        </p>
      ) : found.data?.more ? (
        <p className="note-bar">
          Only running and the newest executions are drawn, {count(found.data.items.length)} in
          total.{" "}
          <button type="button" className="small" onClick={() => closer(found.data.items)}>
            Zoom to them
          </button>
        </p>
      ) : null}
      <Panel label="Workers by time">
        {found.isPending ? <Loading /> : null}
        {found.data && !lanes.length ? (
          <Empty
            title="No workers and no executions."
            command={`rota worker --server ${location.origin}`}
          />
        ) : found.error && !found.data ? null : (
          <Gantt
            lanes={lanes.slice(0, LANES_MAX)}
            estimated={found.data?.crowd?.estimated ?? false}
            start={start}
            end={end + ahead}
            now={now}
            onZoom={(from, to, workerId) =>
              setSearch(
                {
                  after: new Date(from).toISOString(),
                  before: new Date(Math.max(to, from + 1)).toISOString(),
                  ...(workerId ? { worker: workerId } : {}),
                },
                false,
              )
            }
          />
        )}
      </Panel>
    </>
  );
}
