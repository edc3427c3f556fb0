// Calls the API: one typed function for every call. Nothing else in the dashboard fetches.

import type { Calls } from "./schema.gen";

export type CallName = keyof Calls;
type Value = string | number | boolean | undefined | null;
export type Query = Record<string, Value | readonly string[]>;

export interface Asked {
  path?: Record<string, string>;
  query?: Query;
  body?: unknown;
  /** A raw body, instead of a JSON body. */
  file?: File | undefined;
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
}

/** A refusal by the server; `detail` is written for people. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly fields: readonly { field: string; message: string }[] = [],
  ) {
    super(detail);
    this.name = "Problem";
  }
}

export const OCTETS = "application/octet-stream";

const signedOut = new Set<() => void>();

/** Calls back when the session has ended. */
export function onSignedOut(notify: () => void): () => void {
  signedOut.add(notify);
  return () => signedOut.delete(notify);
}

export function addressOf(name: CallName, asked: Asked = {}): string {
  const template = name.slice(name.indexOf(" ") + 1);
  const path = template.replace(/\{(\w+)\}/g, (_, key: string) =>
    encodeURIComponent(asked.path?.[key] ?? ""),
  );
  const query = queryText(asked.query);
  return query ? `${path}?${query}` : path;
}

export function queryText(query: Query = {}): string {
  const pairs = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const one of value) pairs.append(key, one);
    else if (value !== undefined && value !== null && value !== "") pairs.set(key, String(value));
  }
  return pairs.toString();
}

export async function call<N extends CallName>(
  name: N,
  asked: Asked = {},
): Promise<Calls[N]["answer"]> {
  const answer = await send(name, asked);
  if (answer.status === 204) return null as Calls[N]["answer"];
  return (await answer.json()) as Calls[N]["answer"];
}

/** Returns the raw response, for answers that are not JSON; throws refusals as `call` does. */
export async function send(name: CallName, asked: Asked = {}): Promise<Response> {
  const method = name.slice(0, name.indexOf(" "));
  const headers: Record<string, string> = { Accept: "application/json", ...asked.headers };
  if (asked.body !== undefined) headers["Content-Type"] = "application/json";
  if (asked.file) headers["Content-Type"] = OCTETS;
  let answer: Response;
  try {
    answer = await fetch(addressOf(name, asked), {
      method,
      headers,
      body: asked.file ?? (asked.body === undefined ? null : JSON.stringify(asked.body)),
      signal: asked.signal ?? null,
    });
  } catch (error) {
    if (asked.signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "The server cannot be reached. Retrying.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) for (const notify of signedOut) notify();
  throw await problemIn(answer);
}

async function problemIn(answer: Response): Promise<Problem> {
  try {
    const body = (await answer.json()) as {
      detail?: string;
      title?: string;
      type?: string;
      errors?: { field: string; message: string }[];
    };
    const detail = body.detail ?? body.title ?? answer.statusText;
    return new Problem(answer.status, body.type ?? "", detail, body.errors ?? []);
  } catch {
    return new Problem(answer.status, "", answer.statusText || `status ${answer.status}`);
  }
}
