// Settings: this server, tokens, the audit log.

import { type FormEvent, useState } from "react";
import { call, type Problem } from "../api/client";
import { line } from "../api/live";
import type { NewTokenView, TokenSpec } from "../api/schema.gen";
import { useMay, useSession } from "../api/session";
import { usePages } from "../api/use";
import { rotaLine } from "../lib/commands";
import { exact } from "../lib/time";
import { ActionButton, CommandLines } from "../parts/Actions";
import { Ago, Command, Empty, Facts, PageHead, Panel, Status, Trouble } from "../parts/basics";
import { Dialog } from "../parts/Dialog";
import { Table } from "../parts/Table";

export function Settings() {
  const session = useSession();
  const admin = useMay("administer");
  return (
    <>
      <PageHead title="Settings" />
      <Panel title="This server">
        <Facts
          items={[
            ["Version", session.version],
            ["Node", session.node],
            ["Cell", session.cell],
            [
              "Signed in as",
              `${session.name || "no name"}, ${session.role}${session.tenant ? ` of ${session.tenant}` : ""}`,
            ],
            ["Address", location.origin],
          ]}
        />
        <Command text={`export ROTA_URL=${location.origin}\nexport ROTA_TOKEN=…`} />
      </Panel>
      {admin ? (
        <>
          <Tokens />
          <Audit />
        </>
      ) : (
        <Panel title="Tokens">
          <Empty title="Tokens and the audit log are for the role admin." />
        </Panel>
      )}
    </>
  );
}

function Tokens() {
  const pages = usePages("GET /tokens", { query: { limit: 100 } }, { every: 10_000 });
  const [making, setMaking] = useState(false);
  return (
    <Panel
      title="Tokens"
      acts={
        <button type="button" onClick={() => setMaking(true)}>
          New token
        </button>
      }
    >
      <Trouble error={pages.error} />
      <Table
        label="Tokens"
        items={pages.items}
        id={(one) => one.token_id}
        columns={[
          {
            head: "Name",
            kind: "wide",
            cell: (one) => one.name || <span className="soft">no name</span>,
          },
          { head: "Role", cell: (one) => `${one.role}${one.tenant ? ` of ${one.tenant}` : ""}` },
          { head: "Status", cell: (one) => <Status of={one.status} /> },
          { head: "Made", kind: "number", cell: (one) => <Ago time={one.created_at} /> },
          {
            head: "Ends",
            kind: "minor",
            cell: (one) => (one.expires_at ? exact(one.expires_at) : "never"),
          },
          {
            head: <span className="hidden">Actions</span>,
            cell: (one) =>
              one.status === "live" ? (
                <ActionButton
                  small
                  danger
                  label="Revoke"
                  needs="administer"
                  confirm={`Users of ${one.name || one.token_id} lose access within a second, also in browsers.`}
                  act={{
                    call: "DELETE /tokens/{token_id}",
                    asked: { path: { token_id: one.token_id } },
                    rota: rotaLine("tokens", "revoke", one.token_id),
                  }}
                  done="Revoked."
                />
              ) : null,
          },
        ]}
      />
      {making ? <NewToken onClose={() => setMaking(false)} /> : null}
    </Panel>
  );
}

const ROLES: readonly TokenSpec["role"][] = ["viewer", "submitter", "worker", "operator", "admin"];

function NewToken(props: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<TokenSpec["role"]>("viewer");
  const [expires, setExpires] = useState("90d");
  const [made, setMade] = useState<NewTokenView | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const body = { name, role, ...(expires ? { expires_in: expires } : {}) };
  const act = {
    call: "POST /tokens",
    asked: { body },
    rota: rotaLine(
      "tokens",
      "create",
      "--role",
      role,
      "--name",
      name || "NAME",
      ...(expires ? ["--expires", expires] : []),
    ),
  } as const;
  const make = async (event: FormEvent) => {
    event.preventDefault();
    try {
      setMade(await call("POST /tokens", { body }));
      line.readAll();
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  return (
    <Dialog title="New token" onClose={props.onClose}>
      {made ? (
        <>
          <p>Copy it now: it is shown only once. Only its hash is stored.</p>
          <Command text={made.token} />
        </>
      ) : (
        <form onSubmit={(event) => void make(event)}>
          <label className="field">
            Name (user and purpose)
            <input value={name} onChange={(e) => setName(e.target.value)} />
          </label>
          <label className="field">
            Role
            <select value={role} onChange={(e) => setRole(e.target.value as TokenSpec["role"])}>
              {ROLES.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
          <label className="field">
            Expires after (empty: never)
            <input value={expires} onChange={(e) => setExpires(e.target.value)} />
          </label>
          <Trouble error={problem} />
          <CommandLines act={act} />
          <div className="dialog-acts">
            <button type="submit" className="primary">
              Create token
            </button>
          </div>
        </form>
      )}
    </Dialog>
  );
}

function Audit() {
  const pages = usePages("GET /audit", { query: { limit: 30 } }, { every: 10_000 });
  return (
    <Panel title="Audit log">
      <Trouble error={pages.error} />
      <Table
        label="Audit log"
        items={pages.items}
        id={(one) => `${one.at} ${one.token_id} ${one.route} ${one.target}`}
        columns={[
          { head: "When", cell: (one) => <Ago time={one.at} /> },
          { head: "Token", cell: (one) => one.token },
          {
            head: "Call",
            kind: "wide",
            cell: (one) => <code>{`${one.method} ${one.route}`}</code>,
          },
          { head: "About", kind: "minor", cell: (one) => <span className="id">{one.target}</span> },
          { head: "Answer", kind: "number", cell: (one) => String(one.status) },
          { head: "From", kind: "minor", cell: (one) => one.remote },
        ]}
      />
      {pages.hasNextPage ? (
        <p className="more">
          <button type="button" onClick={() => void pages.fetchNextPage()}>
            Earlier
          </button>
        </p>
      ) : null}
    </Panel>
  );
}
