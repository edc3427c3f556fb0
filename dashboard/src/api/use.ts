// Hooks for API calls: queries that are refreshed, and the state of the stream.

import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { type Asked, type CallName, call, type Problem, send } from "./client";
import { type Digest, type LineState, line } from "./live";
import { type Page, readPage } from "./pages";
import type { Calls } from "./schema.gen";

export interface Freshness {
  /** After so many milliseconds a change causes another read. */
  every?: number;
  enabled?: boolean;
  /** Shows the previous data while the next is loading. */
  keep?: boolean;
}

export function useCall<N extends CallName>(name: N, asked: Asked = {}, fresh: Freshness = {}) {
  return useQuery<Calls[N]["answer"], Problem>({
    queryKey: [name, asked.path ?? {}, asked.query ?? {}, asked.body ?? null],
    queryFn: ({ signal }) => call(name, { ...asked, signal }),
    enabled: fresh.enabled ?? true,
    meta: fresh.every === undefined ? {} : { every: fresh.every },
    ...(fresh.keep ? { placeholderData: keepPreviousData } : {}),
  });
}

/** The same for an answer that is text. */
export function useText(name: CallName, asked: Asked = {}) {
  return useQuery<string, Problem>({
    queryKey: ["text", name, asked.path ?? {}, asked.query ?? {}],
    queryFn: async ({ signal }) => (await send(name, { ...asked, signal })).text(),
  });
}

type Paged = {
  [N in CallName]: Calls[N]["answer"] extends Page<unknown> ? N : never;
}[CallName];

/** A list that is read page by page; all pages that were read are refreshed. */
export function usePages<N extends Paged>(name: N, asked: Asked = {}, fresh: Freshness = {}) {
  const pages = useInfiniteQuery<Calls[N]["answer"], Problem>({
    queryKey: ["pages", name, asked.path ?? {}, asked.query ?? {}],
    initialPageParam: undefined,
    queryFn: ({ pageParam, signal }) =>
      readPage(
        (cursor) =>
          call(name, { ...asked, query: { ...asked.query, cursor }, signal }) as Promise<
            Calls[N]["answer"] & Page<unknown>
          >,
        pageParam as string | undefined,
      ),
    getNextPageParam: (last) => (last as Page<unknown>).next_cursor ?? undefined,
    enabled: fresh.enabled ?? true,
    meta: fresh.every === undefined ? {} : { every: fresh.every },
    ...(fresh.keep ? { placeholderData: keepPreviousData } : {}),
  });
  type Item = Calls[N]["answer"] extends Page<infer T> ? T : never;
  const items = (pages.data?.pages ?? []).flatMap((page) => (page as Page<Item>).items);
  return { ...pages, items };
}

export function useLine(): LineState {
  return useSyncExternalStore(line.watch, () => line.state);
}

export function useDigest(): Digest | null {
  return useSyncExternalStore(line.watch, () => line.digest);
}
