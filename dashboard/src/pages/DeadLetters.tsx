// What failed for good, grouped by what went wrong: retry a few first, then all of the group.

import { useState } from "react";
import type { ErrorGroupView, JobFilter } from "../api/schema.gen";
import { useMay } from "../api/session";
import { useCall } from "../api/use";
import type { BulkAction } from "../lib/bulk";
import { count, plural, shortId } from "../lib/format";
import { pageOf, useSearch } from "../lib/router";
import { BulkDialog } from "../parts/BulkDialog";
import { Ago, Empty, Link, Loading, PageHead, Panel, Trouble } from "../parts/basics";

const FEW = 3;

export function DeadLetters() {
  const found = useCall("GET /dead-letters/groups", {}, { every: 3_000 });
  const wanted = useSearch().get("group");
  const [bulk, setBulk] = useState<{ action: BulkAction; filter: JobFilter } | null>(null);
  const groups = found.data?.items ?? [];
  const act = (action: BulkAction, filter: JobFilter) => setBulk({ action, filter });
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
      {found.isPending ? <Loading what="what failed" /> : null}
      {found.data && !groups.length ? (
        <Empty title="No dead letters.">
          Jobs that have used up their attempts gather here, grouped by their error, so that one
          cause is one line.
        </Empty>
      ) : null}
      {groups.map((one) => (
        <Group key={one.fingerprint} group={one} open={one.fingerprint === wanted} act={act} />
      ))}
      {bulk ? (
        <BulkDialog action={bulk.action} filter={bulk.filter} onClose={() => setBulk(null)} />
      ) : null}
    </>
  );
}

function Group(props: {
  group: ErrorGroupView;
  open: boolean;
  act: (action: BulkAction, filter: JobFilter) => void;
}) {
  const { group } = props;
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
                onClick={() => props.act("retry", { job_ids: group.job_ids.slice(0, FEW) })}
              >
                Retry {FEW} first
              </button>
            ) : null}
            <button type="button" className="small primary" onClick={() => props.act("retry", all)}>
              Retry all
            </button>
            <button type="button" className="small danger" onClick={() => props.act("delete", all)}>
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
      <details open={props.open}>
        <summary>The newest of them</summary>
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
