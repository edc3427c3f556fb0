// Filters of jobs: kept in the address, parsed from the search box, sent to the API.

import type { JobFilter } from "../api/schema.gen";
import { STATUSES, type Status } from "./status";

export interface Filter {
  /** The beginning of ids. */
  id: string;
  status: Status[];
  queue: string;
  tenant: string;
  name: string;
  labels: string[];
  priority: string;
  after: string;
  before: string;
}

export const EVERYTHING: Filter = {
  id: "",
  status: [],
  queue: "",
  tenant: "",
  name: "",
  labels: [],
  priority: "",
  after: "",
  before: "",
};

export function readFilter(search: URLSearchParams): Filter {
  const words = (search.get("status") ?? "").split(",");
  return {
    id: (search.get("id") ?? "").toLowerCase(),
    status: STATUSES.filter((status) => words.includes(status)),
    queue: search.get("queue") ?? "",
    tenant: search.get("tenant") ?? "",
    name: search.get("name") ?? "",
    labels: search.getAll("label").filter((label) => label.includes(":")),
    priority: search.get("priority") ?? "",
    after: search.get("after") ?? "",
    before: search.get("before") ?? "",
  };
}

export function writeFilter(filter: Filter): URLSearchParams {
  const search = new URLSearchParams();
  if (filter.status.length) search.set("status", filter.status.join(","));
  for (const key of ["id", "queue", "tenant", "name", "priority", "after", "before"] as const)
    if (filter[key]) search.set(key, filter[key]);
  for (const label of filter.labels) search.append("label", label);
  return search;
}

export function queryOf(filter: Filter) {
  const window = filter.id ? windowOfId(filter.id) : null;
  return {
    status: filter.status.join(","),
    queue: filter.queue,
    tenant: filter.tenant,
    name: filter.name,
    label: filter.labels,
    priority: filter.priority === "" ? undefined : Number(filter.priority),
    created_after: filter.after || window?.after,
    created_before: filter.before || window?.before,
  };
}

/** The filter for a bulk action. */
export function bulkFilterOf(filter: Filter): JobFilter {
  const labels = Object.fromEntries(
    filter.labels.map((label) => {
      const at = label.indexOf(":");
      return [label.slice(0, at), label.slice(at + 1)];
    }),
  );
  return {
    ...(filter.status.length ? { status: filter.status } : {}),
    ...(filter.queue ? { queue: filter.queue } : {}),
    ...(filter.tenant ? { tenant: filter.tenant } : {}),
    ...(filter.name ? { name: filter.name } : {}),
    ...(filter.labels.length ? { labels } : {}),
    ...(filter.priority !== "" ? { priority: Number(filter.priority) } : {}),
    ...(filter.after ? { created_after: filter.after } : {}),
    ...(filter.before ? { created_before: filter.before } : {}),
  };
}

/** Whether a loaded row matches the search text: a part of its name, id or a label. */
export function resembles(
  job: { job_id: string; name: string; labels: Readonly<Record<string, string>> },
  typed: string,
): boolean {
  const word = typed.trim().toLowerCase().replace("=", ":");
  if (!word) return true;
  const labels = Object.entries(job.labels).map(([key, value]) => `${key}:${value}`);
  return [job.name, job.job_id, ...labels].some((text) => text.toLowerCase().includes(word));
}

export const isEverything = (filter: Filter): boolean => writeFilter(filter).toString() === "";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const BEGINNING = /^[0-9a-f]{8}(-[0-9a-f]{0,4})?(-[0-9a-f]{0,4}){0,2}(-[0-9a-f]{0,12})?$/i;

export type Typed =
  | { kind: "job"; id: string }
  | { kind: "filter"; filter: Filter }
  | { kind: "nothing" };

/** Parses the text of the search box. */
export function understand(text: string, filter: Filter): Typed {
  const word = text.trim();
  if (!word) return { kind: "nothing" };
  if (UUID.test(word)) return { kind: "job", id: word.toLowerCase() };
  if (BEGINNING.test(word)) {
    const id = word.toLowerCase();
    if (windowOfId(id)) return { kind: "filter", filter: { ...filter, id } };
  }
  if ((STATUSES as readonly string[]).includes(word))
    return { kind: "filter", filter: { ...filter, status: [word as Status] } };
  const at = word.search(/[:=]/);
  if (at > 0) {
    const key = word.slice(0, at);
    const value = word.slice(at + 1);
    if (key === "queue" || key === "tenant" || key === "name")
      return { kind: "filter", filter: { ...filter, [key]: value } };
    const labels = [...filter.labels.filter((one) => one !== `${key}:${value}`), `${key}:${value}`];
    return { kind: "filter", filter: { ...filter, labels } };
  }
  return { kind: "filter", filter: { ...filter, name: word } };
}

/** A job is accepted a moment after its id was created. */
const SLACK_MS = 10_000;

/** An id begins with its creation time, so the beginning of an id is a time range. */
export function windowOfId(text: string): { after: string; before: string } | null {
  const digits = text.replaceAll("-", "").slice(0, 12);
  const low = Number.parseInt(digits.padEnd(12, "0"), 16);
  const high = Number.parseInt(digits.padEnd(12, "f"), 16);
  const from = new Date(low - SLACK_MS);
  const to = new Date(high + SLACK_MS);
  if (from.getUTCFullYear() < 2020 || to.getUTCFullYear() > 2150) return null;
  return { after: from.toISOString(), before: to.toISOString() };
}
