// Alerts: firing alerts, rules, channels, and recent notifications with their deliveries.

import { useState } from "react";
import type { AlertView, NoticeView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { useCall, usePages } from "../api/use";
import { draftOf, figure, setAct } from "../lib/alerts";
import { rotaLine } from "../lib/commands";
import { go, pageOf } from "../lib/router";
import { SHAPES } from "../lib/status";
import { exact, length } from "../lib/time";
import { ActionButton } from "../parts/Actions";
import { AlertChannels, Deliveries } from "../parts/AlertChannels";
import { AlertForm } from "../parts/AlertForm";
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
import { SilenceAct } from "../parts/SilenceDialog";
import { Table } from "../parts/Table";

export function Alerts() {
  const rules = usePages("GET /alerts", { query: { limit: 500 } }, { every: 5_000 });
  const [making, setMaking] = useState(false);
  const may = useMay("operate");
  const loud = rules.items.filter((one) => one.status === "firing" || one.status === "pending");
  return (
    <>
      <PageHead title="Alerts" sub="The leader evaluates rules every ten seconds">
        {may && rules.items.length ? (
          <button type="button" className="primary" onClick={() => setMaking(true)}>
            New rule
          </button>
        ) : null}
      </PageHead>
      <Trouble error={rules.error} />
      {rules.isPending ? <Loading what="rules" /> : null}
      {rules.data ? (
        <>
          <Firing rules={loud} />
          <Rules rules={rules.items} />
          <AlertChannels />
          <Notices rules={rules.items} />
        </>
      ) : null}
      {making ? <AlertForm rules={rules.items} onClose={() => setMaking(false)} /> : null}
    </>
  );
}

/** The most severe first: firing alerts, then pending ones. */
function Firing(props: { rules: readonly AlertView[] }) {
  const sorted = [...props.rules].sort((one, other) => one.status.localeCompare(other.status));
  return (
    <Panel title="Now" label="Firing alerts">
      {sorted.length ? (
        <ul className="concerns">
          {sorted.map((one) => (
            <li key={one.name}>
              <Link to={pageOf.alert(one.name)}>
                <span className="spread">
                  <span>
                    <Status of={one.status} /> <strong>{one.name}</strong>{" "}
                    <span className="soft">{one.severity}</span>
                    {one.silence ? <span className="soft">, silenced</span> : null}
                  </span>
                  <span className="soft small">
                    since <Ago time={one.since} />
                  </span>
                </span>
                <span className="concern-text">{one.message}</span>
              </Link>
            </li>
          ))}
        </ul>
      ) : (
        <p className="calm">
          <span className="tone-good" aria-hidden="true">
            {SHAPES.good}
          </span>{" "}
          No alert is firing.
        </p>
      )}
    </Panel>
  );
}

function Rules(props: { rules: readonly AlertView[] }) {
  return (
    <Panel title="Rules">
      <Table
        label="Rules"
        items={props.rules}
        id={(one) => one.name}
        to={(one) => pageOf.alert(one.name)}
        columns={[
          {
            head: "Rule",
            kind: "wide",
            cell: (one) => (
              <>
                <Link className="name" to={pageOf.alert(one.name)}>
                  {one.name}
                </Link>
                <span className="under soft">
                  {one.queue ? `queue ${one.queue}: ` : ""}
                  {one.meaning}
                </span>
              </>
            ),
          },
          {
            head: "Status",
            cell: (one) => <Status of={one.status} note={one.silence ? "silenced" : null} />,
          },
          { head: "Now", kind: "number", cell: (one) => figure(one.value, one.unit) },
          { head: "From", kind: "minor number", cell: (one) => figure(one.threshold, one.unit) },
          { head: "Severity", kind: "minor", cell: (one) => one.severity },
          { head: "Tells", kind: "minor", cell: tells },
          {
            head: <span className="hidden">Actions</span>,
            kind: "minor",
            cell: (one) => (
              <span className="row-acts">
                <SilenceAct small name={one.name} silenced={one.silence !== null} />
              </span>
            ),
          },
        ]}
      />
    </Panel>
  );
}

const tells = (one: AlertView): string =>
  one.channels === null ? "everybody" : one.channels.join(", ") || "nobody";

function Notices(props: { rules: readonly AlertView[]; rule?: string }) {
  const notices = usePages("GET /alert-notices", { query: { limit: 100 } }, { every: 5_000 });
  const shown = notices.items.filter((one) => !props.rule || one.name === props.rule);
  // A deleted rule has no page.
  const named = (one: NoticeView) =>
    props.rules.some((rule) => rule.name === one.name) ? (
      <Link className="name" to={pageOf.alert(one.name)}>
        {one.name}
      </Link>
    ) : (
      <span className="name">{one.name}</span>
    );
  return (
    <Panel title="Recent notifications" label="Recent notifications">
      <Trouble error={notices.error} />
      {notices.data && !shown.length ? (
        <Empty title="No recent notifications.">
          One notification is sent when a rule begins to fire, and one when it resolves.
        </Empty>
      ) : null}
      {shown.length ? (
        <Table
          label="Notifications"
          items={shown}
          id={(one) => `${one.name} ${one.status} ${one.at}`}
          columns={[
            {
              head: "What",
              cell: (one) => (
                <>
                  <Status of={one.status} />
                  <span className="under soft">
                    <Ago time={one.at} />
                  </span>
                </>
              ),
            },
            {
              head: props.rule ? "Message" : "Rule",
              kind: "wide",
              cell: (one) => (
                <>
                  {props.rule ? null : named(one)}
                  <span className="under" title={one.message}>
                    {one.message}
                  </span>
                </>
              ),
            },
            { head: "Sent to", kind: "wide", cell: (one) => <Deliveries of={one.deliveries} /> },
          ]}
        />
      ) : null}
    </Panel>
  );
}

export function Alert(props: { name: string }) {
  const path = { name: props.name };
  const found = useCall("GET /alerts/{name}", { path }, { every: 5_000 });
  const rules = usePages("GET /alerts", { query: { limit: 500 } });
  const [editing, setEditing] = useState(false);
  const may = useMay("operate");
  const one = found.data;
  if (!one) return found.error ? <Trouble error={found.error} /> : <Loading what="the rule" />;
  return (
    <>
      <PageHead
        title={
          <>
            {one.name} <Status of={one.status} note={one.silence ? "silenced" : null} />
          </>
        }
        sub={one.meaning}
      >
        {may && rules.items.length ? (
          <button type="button" onClick={() => setEditing(true)}>
            Edit
          </button>
        ) : null}
        <SilenceAct name={one.name} silenced={one.silence !== null} />
        <Switch of={one} />
        <Drop of={one} />
      </PageHead>
      {one.message ? <p className="note-bar">{one.message}</p> : null}
      <Panel title="Rule">
        <Facts items={factsOf(one)} />
      </Panel>
      <Notices rules={rules.items} rule={one.name} />
      {editing ? (
        <AlertForm rule={one} rules={rules.items} onClose={() => setEditing(false)} />
      ) : null}
    </>
  );
}

function factsOf(one: AlertView): [string, React.ReactNode][] {
  const least = one.condition === "disk_low" ? "Fires below" : "Fires at or above";
  return [
    ["Now", figure(one.value, one.unit)],
    [least, figure(one.threshold, one.unit)],
    [one.status === "pending" ? "Pending since" : "Firing since", one.since && exact(one.since)],
    ["Condition", one.condition.replaceAll("_", " ")],
    ["Window", length(one.window)],
    ["Fires after", one.for ? length(one.for) : "at once"],
    ["At least", one.at_least > 1 ? String(one.at_least) : null],
    ["Queue", one.queue ?? "all"],
    ["Severity", one.severity],
    ["Tells", tells(one)],
    ["Repeats", one.repeat ? `every ${length(one.repeat)}` : null],
    [
      "Silenced until",
      one.silence &&
        `${exact(one.silence.until)}${one.silence.reason ? `: ${one.silence.reason}` : ""}`,
    ],
  ];
}

/** Switches a rule on or off and keeps its settings. */
function Switch(props: { of: AlertView }) {
  const { of } = props;
  const draft = draftOf(of);
  const on = setAct(of.name, { ...draft, enabled: true });
  const off = setAct(of.name, { ...draft, enabled: false });
  return (
    <ActionButton
      label={of.enabled ? "Switch off" : "Switch on"}
      needs="operate"
      act={of.enabled ? off : on}
      undo={of.enabled ? on : off}
      done={of.enabled ? "The rule is off." : "The rule is on."}
    />
  );
}

function Drop(props: { of: AlertView }) {
  const { of } = props;
  const words = of.builtin
    ? {
        label: "Reset",
        confirm: "This restores the defaults of the built-in rule.",
        done: "Reset.",
      }
    : { label: "Delete", confirm: "The rule is no longer evaluated.", done: "Deleted." };
  return (
    <ActionButton
      {...words}
      danger
      needs="operate"
      act={{
        call: "DELETE /alerts/{name}",
        asked: { path: { name: of.name } },
        rota: rotaLine("alerts", "reset", of.name),
      }}
      onDone={of.builtin ? () => undefined : () => go(pageOf.alerts)}
    />
  );
}
