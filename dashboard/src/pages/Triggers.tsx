// Triggers, their decisions about events, and the events received.

import { useState } from "react";
import { useMay } from "../api/session";
import { useCall, usePages } from "../api/use";
import { rotaLine } from "../lib/commands";
import { pageOf, setSearch, useSearch } from "../lib/router";
import { length } from "../lib/time";
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
import { CreatorActions, JobMade } from "../parts/CreatorActions";
import { EventDialog, typeFor } from "../parts/EventDialog";
import { Table } from "../parts/Table";
import { TriggerForm } from "../parts/TriggerForm";

export function Triggers() {
  const type = useSearch().get("type") ?? "";
  const triggers = usePages("GET /triggers", { query: { limit: 100 } }, { every: 3_000 });
  const events = usePages(
    "GET /events",
    { query: { type, limit: 50 } },
    { every: 2_000, keep: true },
  );
  const [dialog, setDialog] = useState<"try" | "make" | null>(null);
  const submit = useMay("submit");
  return (
    <>
      <PageHead title="Triggers and events">
        <button type="button" onClick={() => setDialog("try")}>
          Test an event
        </button>
        {submit ? (
          <button type="button" className="primary" onClick={() => setDialog("make")}>
            New trigger
          </button>
        ) : null}
      </PageHead>
      <Panel title="Triggers">
        <Trouble error={triggers.error} />
        {triggers.isPending ? <Loading /> : null}
        {triggers.data && !triggers.items.length ? (
          <Empty
            title="No triggers yet."
            command={`rota triggers create uploads --on object.uploaded -- ./import.sh '{{event.data.path}}'`}
          >
            A trigger makes a job of each event that fits:
          </Empty>
        ) : null}
        {triggers.items.length ? (
          <Table
            label="Triggers"
            items={triggers.items}
            id={(one) => one.trigger_id}
            to={(one) => pageOf.trigger(one.trigger_id)}
            columns={[
              {
                head: "Trigger",
                kind: "wide",
                cell: (one) => (
                  <Link className="name" to={pageOf.trigger(one.trigger_id)}>
                    {one.name}
                  </Link>
                ),
              },
              { head: "Event", kind: "wide", cell: (one) => <code>{one.event}</code> },
              { head: "Status", cell: (one) => <Status of={one.paused ? "paused" : "active"} /> },
              { head: "Waiting", kind: "number", cell: (one) => String(one.waiting) },
              { head: "Owner", kind: "minor", cell: (one) => one.owner ?? "–" },
            ]}
          />
        ) : null}
      </Panel>
      <Panel
        title="Events"
        acts={
          type ? (
            <button type="button" className="chip on" onClick={() => setSearch({ type: "" })}>
              {type} <span aria-hidden="true">✕</span>
              <span className="hidden">remove</span>
            </button>
          ) : null
        }
      >
        <Trouble error={events.error} />
        {events.data && !events.items.length ? (
          <Empty
            title="No events in the last seven days."
            command={`rota events send object.uploaded '{"path": "/in/a.csv"}'`}
          >
            Send one from here, from a program, or by a webhook:
          </Empty>
        ) : null}
        {events.items.length ? (
          <Table
            label="Events"
            items={events.items}
            id={(one) => `${one.source} ${one.id}`}
            columns={[
              {
                head: "Type",
                cell: (one) => (
                  <button
                    type="button"
                    className="chip"
                    onClick={() => setSearch({ type: one.type })}
                  >
                    {one.type}
                  </button>
                ),
              },
              {
                head: "Source",
                kind: "wide",
                cell: (one) => (
                  <span className="soft">
                    {one.source} {one.id}
                  </span>
                ),
              },
              {
                head: "Outcome",
                cell: (one) =>
                  one.outcomes.length ? (
                    one.outcomes.map((each) => (
                      <span key={each.trigger_id} title={each.message}>
                        <Status of={each.outcome} />{" "}
                        {each.job_id ? (
                          <Link to={pageOf.job(each.job_id)}>{each.name ?? "job"}</Link>
                        ) : (
                          each.name
                        )}{" "}
                      </span>
                    ))
                  ) : (
                    <span className="soft">no trigger of this type</span>
                  ),
              },
              { head: "Came", kind: "number", cell: (one) => <Ago time={one.received_at} /> },
            ]}
          />
        ) : null}
        {events.hasNextPage ? (
          <p className="more">
            <button type="button" onClick={() => void events.fetchNextPage()}>
              Older events
            </button>
          </p>
        ) : null}
      </Panel>
      {dialog === "try" ? <EventDialog onClose={() => setDialog(null)} /> : null}
      {dialog === "make" ? <TriggerForm onClose={() => setDialog(null)} /> : null}
    </>
  );
}

export function Trigger(props: { id: string }) {
  const path = { trigger_id: props.id };
  const found = useCall("GET /triggers/{trigger_id}", { path }, { every: 3_000 });
  const arrivals = usePages(
    "GET /triggers/{trigger_id}/events",
    { path, query: { limit: 50 } },
    { every: 2_000 },
  );
  const [trying, setTrying] = useState(false);
  const one = found.data;
  if (!one) return found.error ? <Trouble error={found.error} /> : <Loading what="trigger" />;
  return (
    <>
      <PageHead
        title={
          <>
            {one.name} <Status of={one.paused ? "paused" : "active"} />
          </>
        }
        sub={
          <>
            on <code>{one.event}</code>
          </>
        }
      >
        <button type="button" onClick={() => setTrying(true)}>
          Test an event
        </button>
        <CreatorActions of={one} />
      </PageHead>
      <div className="pair">
        <Panel title="Rule">
          <Facts
            items={[
              [
                "Filter",
                one.filter === null ? (
                  "every event of the type"
                ) : (
                  <code key="f">
                    {typeof one.filter === "string" ? one.filter : JSON.stringify(one.filter)}
                  </code>
                ),
              ],
              [
                "Debounce",
                one.debounce && `${length(one.debounce.wait)}, keeps the ${one.debounce.keep}`,
              ],
              ["Batch", one.batch && `${one.batch.size} or ${length(one.batch.wait)}`],
              [
                "At most",
                one.rate_limit && `${one.rate_limit.count} jobs per ${length(one.rate_limit.per)}`,
              ],
              ["Waiting events", String(one.waiting)],
              ["Owner", one.owner],
            ]}
          />
        </Panel>
        <JobMade job={one.job} />
      </div>
      <Panel title="Events it received">
        <Trouble error={arrivals.error} />
        {arrivals.items.length ? (
          <Table
            label="Events it received"
            items={arrivals.items}
            id={(each) => `${each.source} ${each.event_id}`}
            columns={[
              { head: "Event", kind: "wide", cell: (each) => `${each.source} ${each.event_id}` },
              { head: "Outcome", cell: (each) => <Status of={each.outcome} note={each.message} /> },
              {
                head: "Job",
                cell: (each) =>
                  each.job_id ? <Link to={pageOf.job(each.job_id)}>open</Link> : "–",
              },
              { head: "Came", kind: "number", cell: (each) => <Ago time={each.received_at} /> },
            ]}
          />
        ) : (
          <Empty
            title="No event of its type was received yet."
            command={rotaLine("events", "send", typeFor(one), '{"path": "/in/a.csv"}')}
          >
            Send an event, or test one above without any effect.
          </Empty>
        )}
      </Panel>
      {trying ? <EventDialog trigger={one} onClose={() => setTrying(false)} /> : null}
    </>
  );
}
