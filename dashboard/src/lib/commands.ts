// Each action as a `rota` command and as a `curl` line.

import { type Asked, addressOf, type CallName, OCTETS } from "../api/client";
import type { JobFilter } from "../api/schema.gen";
import { quote } from "./format";

export interface Act {
  call: CallName;
  asked: Asked;
  /** The same for a terminal. */
  rota: string;
}

export function curlOf(act: Act, origin: string): string {
  const method = act.call.slice(0, act.call.indexOf(" "));
  const parts = [`curl -X ${method}`, `-H "Authorization: Bearer $ROTA_TOKEN"`];
  if (act.asked.body !== undefined) {
    parts.push(
      `-H 'Content-Type: application/json'`,
      `-d ${quote(JSON.stringify(act.asked.body))}`,
    );
  }
  if (act.asked.file)
    parts.push(`-H 'Content-Type: ${OCTETS}'`, `--data-binary ${quote(`@${act.asked.file.name}`)}`);
  parts.push(quote(origin + addressOf(act.call, act.asked)));
  return parts.join(" \\\n  ");
}

/** A `curl` line that downloads a file under the server's name for it. */
export function fetchLine(address: string): string {
  return `curl -OJ -H "Authorization: Bearer $ROTA_TOKEN" ${quote(address)}`;
}

export function rotaLine(...words: string[]): string {
  return ["rota", ...words.map(quote)].join(" ");
}

export function bulkLine(action: string, filter: JobFilter, priority?: number): string {
  if (filter.job_ids) return rotaLine(action, ...filter.job_ids);
  const words = ["bulk", action];
  const status = filter.status;
  if (status) words.push("--status", Array.isArray(status) ? status.join(",") : status);
  if (filter.queue) words.push("--queue", filter.queue);
  if (filter.tenant) words.push("--tenant", filter.tenant);
  if (filter.name) words.push("--name", filter.name);
  if (filter.fingerprint) words.push("--fingerprint", filter.fingerprint);
  if (typeof filter.priority === "number") words.push("--priority", String(filter.priority));
  for (const [key, value] of Object.entries(filter.labels ?? {}))
    words.push("--label", `${key}=${value}`);
  if (filter.created_after) words.push("--after", filter.created_after);
  if (filter.created_before) words.push("--before", filter.created_before);
  if (words.length === 2) words.push("--all");
  if (priority !== undefined) words.push("--to", String(priority));
  return rotaLine(...words);
}
