// The bundles of a job: program and inputs, with checksums.

import { addressOf } from "../api/client";
import type { Json } from "../api/schema.gen";
import { useCall } from "../api/use";
import { rotaLine } from "../lib/commands";
import { bundlesOf, bytes, shortId } from "../lib/format";
import { AsCommand } from "./Actions";
import { Ago, Copy, Panel } from "./basics";

export function Bundles(props: { task: Json }) {
  const used = bundlesOf(props.task);
  if (!used.length) return null;
  return (
    <Panel title="Bundles">
      <ul className="plain-list">
        {used.map((one) => (
          <Bundle key={one.use} use={one.use} id={one.id} />
        ))}
      </ul>
      <AsCommand act={{ call: "GET /bundles", asked: {}, rota: rotaLine("bundles") }} />
    </Panel>
  );
}

function Bundle(props: { use: string; id: string }) {
  const path = { bundle_id: props.id };
  const found = useCall("GET /bundles/{bundle_id}", { path });
  const bundle = found.data;
  return (
    <li>
      <span className="soft">{props.use}:</span>{" "}
      {bundle ? (
        <>
          <a href={addressOf("GET /bundles/{bundle_id}/content", { path })} download>
            {bundle.name}
          </a>{" "}
          <span className="soft">
            {bytes(bundle.size)}, {bundle.format}, last used <Ago time={bundle.used_at} />
          </span>{" "}
          <Checksum sha256={bundle.sha256} />
        </>
      ) : (
        <>
          <span className="id">{shortId(props.id)}</span>{" "}
          <span className="soft">
            {found.error?.status === 404
              ? "was deleted: executions that need it will fail"
              : (found.error?.message ?? "…")}
          </span>
        </>
      )}
    </li>
  );
}

export function Checksum(props: { sha256: string | null | undefined }) {
  if (!props.sha256) return null;
  return (
    <span className="checksum">
      <span className="soft code" title={`SHA-256 ${props.sha256}`}>
        sha256 {props.sha256.slice(0, 12)}…
      </span>
      <Copy text={props.sha256} />
    </span>
  );
}
