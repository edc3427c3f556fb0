// Triggers, what each made of events, and the events that came.

import { type FormEvent, useState } from "react";
import { call, type Problem } from "../api/client";
import type { Json, TrialView, TriggerView } from "../api/schema.gen";
import { useCall, usePages } from "../api/use";
import { rotaLine } from "../lib/commands";
import { pretty, taskLine } from "../lib/format";
import { go, pageOf, setSearch, useSearch } from "../lib/router";
import { length } from "../lib/time";
import { ActButton } from "../parts/Acts";
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
import { Dialog, DialogEnd } from "../parts/Dialog";
import { Table } from "../parts/Table";

export function Triggers() {
  const type = useSearch().get("type") ?? "";
  const triggers = usePages("GET /triggers", { query: { limit: 100 } }, { every: 3_000 });
  const events = usePages(
    "GET /events",
    { query: { type, limit: 50 } },
    { every: 2_000, keep: true },
  );
  const [trying, setTrying] = useState(false);
  return (
    <>
      <PageHead title="Triggers and events">
        <button type="button" onClick={() => setTrying(true)}>
          Try an event
        </button>
      </PageHead>
      <Panel title="Triggers">
        <Trouble error={triggers.error} />
        {triggers.isPending ? <Loading /> : null}
        {triggers.data && !triggers.items.length ? (
          <Empty
            title="No triggers yet."
            command={`rota triggers create uploads --event object.uploaded -- ./import.sh '{{event.data.path}}'`}
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
              { head: "Event", cell: (one) => <code>{one.event}</code> },
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
            command={`rota events send object.uploaded --data '{"path": "/in/a.csv"}'`}
          >
            Send one by hand, from a program, or by a webhook:
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
      {trying ? <TryDialog onClose={() => setTrying(false)} /> : null}
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
  if (!one) return found.error ? <Trouble error={found.error} /> : <Loading what="the trigger" />;
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
          Try an event
        </button>
        <TriggerActs trigger={one} />
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
        <Panel title="Job">
          <Facts
            items={[
              ["Name", String(one.job.name ?? "")],
              ["Task", <code key="t">{taskLine(one.job.task ?? null)}</code>],
              ["Queue", String(one.job.queue ?? "default")],
            ]}
          />
        </Panel>
      </div>
      <Panel title="What it made of events">
        <Trouble error={arrivals.error} />
        {arrivals.items.length ? (
          <Table
            label="Arrivals"
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
            title="No event of its type has come yet."
            command={rotaLine("triggers", "test", "--help")}
          >
            Try one out; nothing happens.
          </Empty>
        )}
      </Panel>
      {trying ? <TryDialog trigger={one} onClose={() => setTrying(false)} /> : null}
    </>
  );
}

function TriggerActs(props: { trigger: TriggerView }) {
  const { trigger } = props;
  const path = { trigger_id: trigger.trigger_id };
  const id = trigger.trigger_id;
  const pause = {
    call: "POST /triggers/{trigger_id}/pause",
    asked: { path },
    rota: rotaLine("triggers", "pause", id),
  } as const;
  const resume = {
    call: "POST /triggers/{trigger_id}/resume",
    asked: { path },
    rota: rotaLine("triggers", "resume", id),
  } as const;
  return (
    <>
      <ActButton
        label={trigger.paused ? "Resume" : "Pause"}
        needs="submit"
        act={trigger.paused ? resume : pause}
        undo={trigger.paused ? pause : resume}
        done={
          trigger.paused ? "It goes on with the next event." : "It makes no jobs until resumed."
        }
      />
      <ActButton
        label="Delete"
        danger
        needs="submit"
        confirm="Its jobs go on; events that wait in it are dropped."
        act={{
          call: "DELETE /triggers/{trigger_id}",
          asked: { path },
          rota: rotaLine("triggers", "delete", id),
        }}
        done="Deleted."
        onDone={() => go(pageOf.triggers)}
      />
    </>
  );
}

function TryDialog(props: { trigger?: TriggerView; onClose: () => void }) {
  const [type, setType] = useState(
    props.trigger?.event.replace(/\*+$/, "made") ?? "object.uploaded",
  );
  const [data, setData] = useState('{"path": "/in/a.csv", "size": 1200}');
  const [found, setFound] = useState<TrialView[] | null>(null);
  const [problem, setProblem] = useState<Problem | Error | null>(null);
  const test = async (event: FormEvent) => {
    event.preventDefault();
    try {
      const answer = await call("POST /triggers/preview", {
        body: {
          event: { id: "try", source: "dashboard", type, data: JSON.parse(data) as Json },
          ...(props.trigger ? { trigger_id: props.trigger.trigger_id } : {}),
        },
      });
      setFound(answer.items);
      setProblem(null);
    } catch (error) {
      setProblem(
        error instanceof SyntaxError
          ? new Error(`The data is not JSON: ${error.message}`)
          : (error as Problem),
      );
    }
  };
  return (
    <Dialog title="Try an event" onClose={props.onClose}>
      <form onSubmit={(event) => void test(event)}>
        <p>
          Says what {props.trigger ? props.trigger.name : "all triggers"} would make of it. Nothing
          happens.
        </p>
        <label className="field">
          Type
          <input value={type} required onChange={(e) => setType(e.target.value)} />
        </label>
        <label className="field">
          Data, as JSON
          <textarea
            className="code"
            rows={4}
            value={data}
            onChange={(e) => setData(e.target.value)}
            spellCheck={false}
          />
        </label>
        <Trouble error={problem} />
        {found?.map((one) => (
          <div key={one.name} className="trial">
            <Status of={one.outcome} /> <strong>{one.name}</strong> {one.message}
            {one.job ? <pre className="json">{pretty(one.job)}</pre> : null}
          </div>
        ))}
        {found && !found.length ? (
          <p className="soft">No trigger is for events of this type.</p>
        ) : null}
        <DialogEnd onClose={props.onClose}>Try it</DialogEnd>
      </form>
    </Dialog>
  );
}
