// A sentence from the server, with every id as a link.

import { shortId } from "../lib/format";
import { pageOf } from "../lib/router";
import { pieces } from "../lib/why";
import { Link } from "./basics";
import { WorkerName } from "./WorkerName";

export function LinkedText(props: { text: string }) {
  return pieces(props.text).map((one, at) => {
    // biome-ignore lint/suspicious/noArrayIndexKey: pieces are in the order of the sentence
    if (!one.names) return <span key={at}>{one.text}</span>;
    // biome-ignore lint/suspicious/noArrayIndexKey: pieces are in the order of the sentence
    if (one.names === "worker") return <WorkerName key={at} id={one.text} />;
    return (
      // biome-ignore lint/suspicious/noArrayIndexKey: pieces are in the order of the sentence
      <Link key={at} to={pageOf.job(one.text)} title={one.text}>
        {shortId(one.text)}
      </Link>
    );
  });
}
