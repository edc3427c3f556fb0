// Dead letters: failed jobs grouped by error. Retry a few first, then the whole group.

import { useState } from "react";
import type { ErrorGroupView, JobFilter } from "../api/schema.gen";
import { useMay } from "../api/session";
import { useCall, useText } from "../api/use";
import { plainText } from "../lib/ansi";
import type { BulkAction } from "../lib/bulk";
import { count, plural, shortId } from "../lib/format";
import { pageOf, useSearch } from "../lib/router";
import { BulkDialog } from "../parts/BulkDialog";
import { Ago, Empty, Link, Loading, PageHead, Panel, Status, Trouble } from "../parts/basics";

const FEW = 3;
const LAST_LINES = 8;

interface Asked {
  action: BulkAction;
  filter: JobFilter;
  /** The group whose first jobs are retried. */
  first?: string;
}

export function DeadLetters() {
  const found = useCall("GET /dead-letters/groups", {}, { every: 3_000 });
  const wanted = useSearch().get("group");
  const [bulk, setBulk] = useState<Asked | null>(null);
  // The jobs that were retried first, by group, to show whether they succeed.
  const [tried, setTried] = useState<Readonly<Record<string, readonly string[]>>>({});
  const groups = found.data?.items ?? [];
  const closed = (acted: boolean) => {
    if (acted && bulk?.first) setTried({ ...tried, [bulk.first]: bulk.filter.job_ids ?? [] });
    setBulk(null);
  };
  return (
    <>
      <PageHead
        title="Dead letters"
        sub={
          found.data
            ? `${plural(found.data.examined, "job")} in ${plural(groups.length, "group")}${found.data.more ? ", the newest; there are more" : ""}`
            : ""
        }
      />
      <Trouble error={found.error} />
      {found.isPending ? <Loading what="dead letters" /> : null}
      {found.data && !groups.length ? (
        <Empty title="No dead letters.">
          Jobs that have used up their attempts gather here, grouped by their error, so that one
          cause is one line.
        </Empty>
      ) : null}
      {groups.map((one) => (
        <Group
          key={one.fingerprint + one.name}
          group={one}
          open={one.fingerprint === wanted}
          tried={tried[one.fingerprint] ?? []}
          act={setBulk}
        />
      ))}
      {bulk ? <BulkDialog action={bulk.action} filter={bulk.filter} onClose={closed} /> : null}
    </>
  );
}

function Group(props: {
  group: ErrorGroupView;
  open: boolean;
  tried: readonly string[];
  act: (asked: Asked) => void;
}) {
  const { group } = props;
  const [open, setOpen] = useState(props.open);
  const operate = useMay("operate");
  const all: JobFilter = { status: "failed", name: group.name, fingerprint: group.fingerprint };
  return (
    <Panel
      className={props.open ? "group marked" : "group"}
      label={`${group.name}: ${group.message}`}
      title={
        <>
          <span className="count">{count(group.count)}×</span> {group.name}
        </>
      }
      acts={
        operate ? (
          <>
            {group.count > FEW ? (
              <button
                type="button"
                className="small"
                onClick={() =>
                  props.act({
                    action: "retry",
                    filter: { job_ids: group.job_ids.slice(0, FEW) },
                    first: group.fingerprint,
                  })
                }
              >
                Retry {FEW} first
              </button>
            ) : null}
            <button
              type="button"
              className="small"
              onClick={() => props.act({ action: "retry", filter: all })}
            >
              Retry all
            </button>
            <button
              type="button"
              className="small danger"
              onClick={() => props.act({ action: "delete", filter: all })}
            >
              Delete all
            </button>
          </>
        ) : null
      }
    >
      <p className="error-line">{group.message || group.reason}</p>
      <p className="soft small">
        first <Ago time={group.first_at} />, last <Ago time={group.last_at} />, in{" "}
        {group.queues.join(", ")}
      </p>
      {props.tried.length ? <Tried ids={props.tried} /> : null}
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>Newest job and the end of its log</summary>
        {open && group.job_ids[0] ? <LastWords id={group.job_ids[0]} /> : null}
        <ul className="id-list">
          {group.job_ids.map((id) => (
            <li key={id}>
              <Link to={pageOf.job(id)} className="id">
                {shortId(id)}
              </Link>
            </li>
          ))}
        </ul>
        <Link to={pageOf.jobs(`status=failed&name=${encodeURIComponent(group.name)}`)}>
          All failed jobs of this name
        </Link>
      </details>
    </Panel>
  );
}

/** The states of the jobs that were retried first. */
function Tried(props: { ids: readonly string[] }) {
  return (
    <p role="status">
      Retried first:{" "}
      {props.ids.map((id) => (
        <TriedJob key={id} id={id} />
      ))}
    </p>
  );
}

function TriedJob(props: { id: string }) {
  const found = useCall("GET /jobs/{job_id}", { path: { job_id: props.id } }, { every: 1_000 });
  return (
    <Link to={pageOf.job(props.id)} className="chip">
      {found.data ? <Status of={found.data.status} /> : shortId(props.id)}
    </Link>
  );
}

/** The end of a job's log. */
function LastWords(props: { id: string }) {
  const found = useText("GET /jobs/{job_id}/logs", {
    path: { job_id: props.id },
    query: { tail: LAST_LINES, limit: 20_000 },
  });
  if (!found.data) return null;
  return <pre className="json last-words">{plainText(found.data)}</pre>;
}
