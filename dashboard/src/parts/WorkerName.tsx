// The name of a worker; the end of its id until the name is loaded.

import { useCall } from "../api/use";
import { shortId } from "../lib/format";
import { pageOf } from "../lib/router";
import { Link } from "./basics";

const KNOWN_MAX = 500;

/** One query for all workers on a page. */
export function useWorkerNames(): (id: string) => string {
  const found = useCall("GET /workers", { query: { limit: KNOWN_MAX } }, { every: 30_000 });
  const names = new Map(found.data?.items.map((one) => [one.worker_id, one.name]));
  return (id) => names.get(id) ?? shortId(id);
}

export function WorkerName(props: { id: string }) {
  const nameOf = useWorkerNames();
  return (
    <Link to={pageOf.worker(props.id)} title={props.id}>
      {nameOf(props.id)}
    </Link>
  );
}
