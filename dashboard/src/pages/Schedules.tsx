// Schedules: next and last run of each; one schedule with its occurrences and next instants.

import { useState } from "react";
import type { ScheduleView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { useCall, usePages } from "../api/use";
import { useNow } from "../lib/clock";
import { rotaLine } from "../lib/commands";
import { cronWords } from "../lib/cronText";
import { pageOf } from "../lib/router";
import { exact, length } from "../lib/time";
import { ActionButton } from "../parts/Actions";
import { BackfillDialog } from "../parts/BackfillDialog";
import {
  Ago,
  Empty,
  Facts,
  Link,
  Loading,
  PageHead,
  Panel,
  Status,
  Trouble,
} from "../parts/basics";
import { CalendarStrip } from "../parts/CalendarStrip";
import { CreatorActions, JobMade } from "../parts/CreatorActions";
import { ScheduleForm } from "../parts/ScheduleForm";
import { type Column, Table } from "../parts/Table";

export function whenWords(schedule: ScheduleView): string {
  if (schedule.cron)
    return cronWords(schedule.cron, schedule.timezone) ?? `${schedule.cron} ${schedule.timezone}`;
  if (schedule.interval) return `every ${length(schedule.interval)}`;
  return schedule.at ? `once, at ${exact(schedule.at)}` : "never";
}

const COLUMNS: readonly Column<ScheduleView>[] = [
  {
    head: "Schedule",
    kind: "wide",
    cell: (one) => (
      <>
        <Link className="name" to={pageOf.schedule(one.schedule_id)}>
          {one.name}
        </Link>
        <span className="soft under">{whenWords(one)}</span>
      </>
    ),
  },
  { head: "Status", cell: (one) => <Status of={one.status} note={one.trouble} /> },
  { head: "Next", kind: "number", cell: (one) => <Ago time={one.next_at} /> },
  {
    head: "Last",
    cell: (one) =>
      one.last ? (
        <>
          <Status of={one.last.outcome} /> <Ago time={one.last.at} />
        </>
      ) : (
        <span className="soft">not yet</span>
      ),
  },
  { head: "Running", kind: "number", cell: (one) => String(one.running.length) },
  { head: "Owner", kind: "minor", cell: (one) => one.owner ?? "–" },
];

export function Schedules() {
  const pages = usePages("GET /schedules", { query: { limit: 100 } }, { every: 2_000 });
  const [making, setMaking] = useState(false);
  const submit = useMay("submit");
  return (
    <>
      <PageHead title="Schedules">
        {submit ? (
          <button type="button" className="primary" onClick={() => setMaking(true)}>
            New schedule
          </button>
        ) : null}
      </PageHead>
      <Trouble error={pages.error} />
      {pages.isPending ? <Loading what="schedules" /> : null}
      {pages.data && !pages.items.length ? (
        <Empty
          title="No schedules yet."
          command={`rota schedules create nightly --cron "0 3 * * *" --tz Europe/Berlin -- ./backup.sh`}
        >
          A schedule makes one job for each of its instants, never two, through crashes and clock
          changes.
        </Empty>
      ) : null}
      {pages.items.length ? (
        <Table
          label="Schedules"
          items={pages.items}
          id={(one) => one.schedule_id}
          to={(one) => pageOf.schedule(one.schedule_id)}
          columns={COLUMNS}
        />
      ) : null}
      {pages.hasNextPage ? (
        <p className="more">
          <button type="button" onClick={() => void pages.fetchNextPage()}>
            More schedules
          </button>
        </p>
      ) : null}
      {making ? <ScheduleForm onClose={() => setMaking(false)} /> : null}
    </>
  );
}

export function Schedule(props: { id: string }) {
  const path = { schedule_id: props.id };
  const now = useNow();
  const found = useCall("GET /schedules/{schedule_id}", { path }, { every: 2_000 });
  const coming = useCall(
    "GET /schedules/{schedule_id}/preview",
    { path, query: { count: 20 } },
    { every: 10_000 },
  );
  const past = useCall(
    "GET /schedules/{schedule_id}/occurrences",
    { path, query: { limit: 100 } },
    { every: 5_000 },
  );
  const [dialog, setDialog] = useState<"edit" | "backfill" | null>(null);
  const submit = useMay("submit");
  const one = found.data;
  if (!one) return found.error ? <Trouble error={found.error} /> : <Loading what="schedule" />;
  return (
    <>
      <PageHead
        title={
          <>
            {one.name} <Status of={one.status} note={one.trouble} />
          </>
        }
        sub={whenWords(one)}
      >
        <ActionButton
          label="Run now"
          needs="submit"
          act={{
            call: "POST /schedules/{schedule_id}/trigger",
            asked: { path },
            rota: rotaLine("schedules", "trigger", one.schedule_id),
          }}
          done="A job was created."
        />
        <CreatorActions of={one} />
        {submit ? (
          <>
            <button type="button" onClick={() => setDialog("edit")}>
              Edit
            </button>
            <button type="button" onClick={() => setDialog("backfill")}>
              Backfill
            </button>
          </>
        ) : null}
      </PageHead>
      <Panel
        title="Run times"
        acts={
          <span className="soft small">
            <span className="tone-good">●</span> ran <span className="tone-bad">▲</span> late{" "}
            <span className="tone-wait">○</span> caught up – skipped{" "}
            <span className="tone-busy">◇</span> to come <span className="tone-bad">⚑</span> clock
            change
          </span>
        }
      >
        <CalendarStrip
          past={past.data?.items.slice(0, 60) ?? []}
          coming={coming.data?.items ?? []}
          zone={one.timezone}
          now={now}
        />
      </Panel>
      <div className="pair">
        <Panel title="Rules">
          <Facts
            items={[
              ["Cron", one.cron && <code key="c">{one.cron}</code>],
              ["Zone", one.timezone],
              ["Next", <Ago key="n" time={one.next_at} />],
              [
                "Missed runs",
                {
                  none: "are skipped",
                  latest: "only the latest runs",
                  all: "all run",
                }[one.catch_up],
              ],
              ["Overlap", `${one.overlap}, ${one.max_concurrency} at once`],
              [
                "Clock changes",
                `missing times: ${one.dst.gap}; repeated times: ${one.dst.overlap}`,
              ],
              ["Jitter", one.jitter ? length(one.jitter) : null],
              ["Calendars", one.calendars.join(", ")],
              ["Owner", one.owner],
            ]}
          />
        </Panel>
        <JobMade job={one.job} />
      </div>
      <Panel title="History">
        {past.data?.items.length ? (
          <Table
            label="Occurrences"
            items={past.data.items.slice(0, 50)}
            id={(each) => each.at + each.cause}
            columns={[
              { head: "Instant", cell: (each) => exact(each.at) },
              { head: "Outcome", cell: (each) => <Status of={each.outcome} note={each.message} /> },
              { head: "Late by", kind: "number", cell: (each) => length(each.late) },
              { head: "By", kind: "minor", cell: (each) => each.cause },
              {
                head: "Job",
                cell: (each) =>
                  each.job_id ? <Link to={pageOf.job(each.job_id)}>open</Link> : "–",
              },
            ]}
          />
        ) : (
          <p className="soft">No run was due yet.</p>
        )}
      </Panel>
      {dialog === "edit" ? <ScheduleForm schedule={one} onClose={() => setDialog(null)} /> : null}
      {dialog === "backfill" ? (
        <BackfillDialog schedule={one} onClose={() => setDialog(null)} />
      ) : null}
    </>
  );
}
