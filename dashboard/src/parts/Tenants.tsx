// Tenants: current share and fair share of the fleet, and quotas.

import { type FormEvent, useState } from "react";
import { call, type Problem } from "../api/client";
import { line } from "../api/live";
import type { TenantView } from "../api/schema.gen";
import { useMay } from "../api/session";
import { usePages } from "../api/use";
import { bytes, count, percent, sizeWord } from "../lib/format";
import { type TenantForm, tenantAct } from "../lib/policy";
import { pageOf } from "../lib/router";
import { CommandLines, useNotify } from "./Actions";
import { Empty, Link, Loading, Panel, Trouble } from "./basics";
import { Dialog, DialogEnd } from "./Dialog";
import { type Column, Table } from "./Table";

type Edited = TenantView | "new";

export function Tenants() {
  const pages = usePages("GET /tenants", { query: { limit: 200 } }, { every: 2_000 });
  const [editing, setEditing] = useState<Edited | null>(null);
  const operate = useMay("operate");
  return (
    <Panel
      title="Tenants"
      acts={
        operate ? (
          <button type="button" className="small" onClick={() => setEditing("new")}>
            New tenant
          </button>
        ) : null
      }
    >
      <Trouble error={pages.error} />
      {pages.isPending ? <Loading what="tenants" /> : null}
      {pages.data && !pages.items.length ? (
        <Empty title="No tenants yet." command="rota submit --tenant acme -- echo hello">
          A tenant is created on first use, with weight 1 and no quotas.
        </Empty>
      ) : null}
      {pages.items.length ? (
        <Table
          label="Tenants"
          items={pages.items}
          id={(one) => one.name}
          to={(one) => pageOf.jobs(`tenant=${encodeURIComponent(one.name)}`)}
          columns={columns(operate ? setEditing : null)}
        />
      ) : null}
      {pages.hasNextPage ? (
        <p className="more">
          <button type="button" onClick={() => void pages.fetchNextPage()}>
            More tenants
          </button>
        </p>
      ) : null}
      {editing ? <EditTenant tenant={editing} onClose={() => setEditing(null)} /> : null}
    </Panel>
  );
}

const of = (used: string, quota: string | null): string => (quota ? `${used} / ${quota}` : used);

function columns(edit: ((tenant: TenantView) => void) | null): Column<TenantView>[] {
  const jobs = (one: TenantView, status: string) =>
    pageOf.jobs(`tenant=${encodeURIComponent(one.name)}&status=${status}`);
  const limit = (value: number | null) => (value === null ? null : count(value));
  return [
    {
      head: "Tenant",
      kind: "wide",
      cell: (one) => (
        <Link className="name" to={pageOf.jobs(`tenant=${encodeURIComponent(one.name)}`)}>
          {one.name}
        </Link>
      ),
    },
    { head: "Share and fair share", kind: "minor", cell: (one) => <ShareBar tenant={one} /> },
    {
      head: "Share",
      kind: "number",
      cell: (one) => (
        <>
          {percent(one.share)} <span className="soft">of {percent(one.entitlement)}</span>
        </>
      ),
    },
    { head: "Weight", kind: "number", cell: (one) => String(one.weight) },
    { head: "Used, h", kind: "number", cell: (one) => one.usage.toFixed(2) },
    {
      head: "Waiting",
      kind: "number",
      cell: (one) => (
        <Link to={jobs(one, "pending,queued")}>
          {of(count(one.depth.pending + one.depth.queued), limit(one.quota.queued))}
        </Link>
      ),
    },
    {
      head: "Running",
      kind: "number",
      cell: (one) => (
        <Link to={jobs(one, "running,cancelling")}>
          {of(count(one.depth.running + one.depth.cancelling), limit(one.quota.running))}
        </Link>
      ),
    },
    {
      head: "Cpu",
      kind: "number",
      cell: (one) =>
        of(
          String(Number(one.cpu.toFixed(2))),
          one.quota.cpu === null ? null : String(one.quota.cpu),
        ),
    },
    {
      head: "Memory",
      kind: "number",
      cell: (one) =>
        of(bytes(one.memory), one.quota.memory === null ? null : bytes(one.quota.memory)),
    },
    {
      head: <span className="hidden">Actions</span>,
      cell: (one) =>
        edit ? (
          <span className="row-acts">
            <button type="button" className="small" onClick={() => edit(one)}>
              Quotas
            </button>
          </span>
        ) : null,
    },
  ];
}

/** The current share, with a mark at the fair share. */
function ShareBar(props: { tenant: TenantView }) {
  const { share, entitlement } = props.tenant;
  const words = `uses ${percent(share)} of the fleet, its fair share is ${percent(entitlement)}`;
  return (
    <svg
      className="depth"
      viewBox="0 0 100 10"
      preserveAspectRatio="none"
      role="img"
      aria-label={words}
    >
      <title>{words}</title>
      <rect className="track" y="1" width="100" height="8" />
      <rect className="fill tone-busy" y="1" width={Math.min(100, share * 100)} height="8" />
      <rect className="mark" x={Math.min(98, entitlement * 100)} width="1.5" height="10" />
    </svg>
  );
}

const FRESH: TenantForm = { weight: "1", running: "", queued: "", cpu: "", memory: "" };

function formOf(tenant: Edited): TenantForm {
  if (tenant === "new") return FRESH;
  const { quota } = tenant;
  const text = (value: number | null) => (value === null ? "" : String(value));
  return {
    weight: String(tenant.weight),
    running: text(quota.running),
    queued: text(quota.queued),
    cpu: text(quota.cpu),
    memory: quota.memory === null ? "" : sizeWord(quota.memory),
  };
}

function EditTenant(props: { tenant: Edited; onClose: () => void }) {
  const say = useNotify();
  const [name, setName] = useState(props.tenant === "new" ? "" : props.tenant.name);
  const [form, setForm] = useState(() => formOf(props.tenant));
  const [problem, setProblem] = useState<Problem | null>(null);
  const act = tenantAct(name, form);
  const field = (kind: keyof TenantForm, label: string, more: object) => (
    <label className="field">
      {label}
      <input
        value={form[kind]}
        onChange={(event) => setForm({ ...form, [kind]: event.target.value })}
        {...more}
      />
    </label>
  );
  const whole = { type: "number", min: 0, step: 1 };
  const save = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await call(act.call, act.asked);
      say(`${name} is changed. It holds from the next decision on.`);
      props.onClose();
      line.readAll();
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  return (
    <Dialog
      title={props.tenant === "new" ? "New tenant" : `Weight and quotas of ${name}`}
      onClose={props.onClose}
    >
      <p className="soft">
        A tenant at its quota waits, and nobody else does. Beyond “waiting” a submit is refused.
        Empty: no limit.
      </p>
      <form onSubmit={(event) => void save(event)}>
        <div className="fields">
          {props.tenant === "new" ? (
            <label className="field">
              Name
              <input required value={name} onChange={(event) => setName(event.target.value)} />
            </label>
          ) : null}
          {field("weight", "Weight (share among tenants)", {
            type: "number",
            min: 0.001,
            max: 1_000_000,
            step: "any",
            required: true,
          })}
          {field("running", "Running at once", whole)}
          {field("queued", "Waiting", whole)}
          {field("cpu", "Cpus at once", { type: "number", min: 0, step: "any" })}
          {field("memory", "Memory at once, such as 256GiB", {
            pattern: "\\s*\\d+(\\.\\d+)?\\s*([kmgtpKMGTP]i?[bB]?|[bB])?\\s*",
            title: "a number and a unit, such as 256GiB",
          })}
        </div>
        <Trouble error={problem} />
        <CommandLines act={act} />
        <DialogEnd onClose={props.onClose}>Save</DialogEnd>
      </form>
    </Dialog>
  );
}
