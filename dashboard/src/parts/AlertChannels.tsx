// Notification channels: last delivery, test, and a form for a new one.

import { type FormEvent, useState } from "react";
import { call, type Problem } from "../api/client";
import { line } from "../api/live";
import type { ChannelTrial, ChannelView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { usePages } from "../api/use";
import { channelAct, deliveryText, SEVERITIES } from "../lib/alerts";
import { rotaLine } from "../lib/commands";
import { ActionButton, CommandLines, useNotify } from "./Actions";
import { Ago, Empty, Loading, Panel, Status, Trouble } from "./basics";
import { Dialog, DialogEnd } from "./Dialog";
import { Table } from "./Table";

export function AlertChannels() {
  const channels = usePages("GET /alert-channels", { query: { limit: 100 } }, { every: 5_000 });
  const admin = useMay("administer");
  const [making, setMaking] = useState(false);
  return (
    <Panel
      title="Notification channels"
      label="Notification channels"
      acts={
        admin ? (
          <button type="button" onClick={() => setMaking(true)}>
            New channel
          </button>
        ) : null
      }
    >
      <Trouble error={channels.error} />
      {channels.isPending ? <Loading /> : null}
      {channels.data && !channels.items.length ? (
        <Empty
          title="No notification channels yet."
          command={`rota alerts channels set on-call --url "$ROTA_ALERT_URL"`}
        >
          Rules are evaluated without channels, too. A channel sends notifications: a webhook
          (https://…), mail (mailto://…), Slack (slack://…) and many others.
        </Empty>
      ) : null}
      {channels.items.length ? (
        <Table
          label="Channels"
          items={channels.items}
          id={(one) => one.name}
          columns={[
            { head: "Channel", kind: "wide", cell: (one) => <Name of={one} /> },
            { head: "Last sent", kind: "wide", cell: (one) => <Last of={one} /> },
            { head: "Waiting", kind: "number", cell: (one) => String(one.waiting) },
            { head: "From", kind: "minor", cell: (one) => one.severity },
            {
              head: <span className="hidden">Actions</span>,
              cell: (one) => <ChannelActs of={one} />,
            },
          ]}
        />
      ) : null}
      {making ? <ChannelForm onClose={() => setMaking(false)} /> : null}
    </Panel>
  );
}

function Name(props: { of: ChannelView }) {
  return (
    <>
      <span className="name">{props.of.name}</span>
      <span className="under soft">
        {props.of.url}
        {props.of.signed ? ", signed" : ""}
      </span>
    </>
  );
}

function Last(props: { of: ChannelView }) {
  const last = props.of.last;
  if (!last) return <span className="soft">never</span>;
  return (
    <>
      <Status of={last.status} /> <Ago time={last.at} />
      {last.error ? <span className="under tone-bad">{last.error}</span> : null}
    </>
  );
}

function ChannelActs(props: { of: ChannelView }) {
  const path = { name: props.of.name };
  return (
    <span className="row-acts">
      <ActionButton
        small
        label="Test"
        needs="administer"
        act={{
          call: "POST /alert-channels/{name}/test",
          asked: { path },
          rota: rotaLine("alerts", "test", props.of.name),
        }}
        done={(answer) => {
          const tried = answer as ChannelTrial;
          return tried.taken
            ? { text: `${props.of.name} took the test.` }
            : { text: `Sending to ${props.of.name} failed: ${tried.message}`, bad: true };
        }}
      />
      <ActionButton
        small
        danger
        label="Delete"
        needs="administer"
        confirm={`${props.of.name} gets no more notifications; those that wait for it are dropped.`}
        act={{
          call: "DELETE /alert-channels/{name}",
          asked: { path },
          rota: rotaLine("alerts", "channels", "delete", props.of.name),
        }}
        done="Deleted."
      />
    </span>
  );
}

function ChannelForm(props: { onClose: () => void }) {
  const say = useNotify();
  const [name, setName] = useState("");
  const [url, setUrl] = useState("");
  const [secret, setSecret] = useState("");
  const [severity, setSeverity] = useState<ChannelView["severity"]>("info");
  const [problem, setProblem] = useState<Problem | null>(null);
  const spec = { url, severity, ...(secret ? { secret } : {}) };
  const { act, shown } = channelAct(name, spec);
  const save = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await call(act.call, act.asked);
      say(`${name} is set up; press Test to see whether it is taken.`);
      props.onClose();
      line.readAll();
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  return (
    <Dialog title="New channel" onClose={props.onClose} wide>
      <form onSubmit={(event) => void save(event)}>
        <div className="fields">
          <label className="field">
            Name
            <input
              value={name}
              required
              onChange={(event) => setName(event.target.value)}
              spellCheck={false}
            />
          </label>
          <label className="field">
            Address: https://…, mailto://…, slack://…
            <input
              type="password"
              value={url}
              required
              autoComplete="off"
              onChange={(event) => setUrl(event.target.value)}
            />
          </label>
          <label className="field">
            Secret that signs a webhook (empty: none)
            <input
              type="password"
              value={secret}
              minLength={16}
              autoComplete="off"
              onChange={(event) => setSecret(event.target.value)}
            />
          </label>
          <label className="field">
            Minimum severity
            <select
              value={severity}
              onChange={(event) => setSeverity(event.target.value as ChannelView["severity"])}
            >
              {SEVERITIES.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
        </div>
        <p className="soft">
          The address is secret: the server stores it and never shows it again.
        </p>
        <Trouble error={problem} />
        <CommandLines act={shown} />
        <DialogEnd onClose={props.onClose}>Create channel</DialogEnd>
      </form>
    </Dialog>
  );
}

/** Deliveries of a notification, by channel. */
export function Deliveries(props: { of: readonly ChannelView["last"][] }) {
  const sent = props.of.filter((one) => one !== null);
  if (!sent.length) return <span className="soft">nobody</span>;
  return (
    <ul className="plain-list">
      {sent.map((one) => (
        <li key={one.channel}>
          {one.channel} <span className={one.error ? "tone-bad" : "soft"}>{deliveryText(one)}</span>
          {one.next_try ? (
            <span className="soft">
              , again <Ago time={one.next_try} />
            </span>
          ) : null}
        </li>
      ))}
    </ul>
  );
}
