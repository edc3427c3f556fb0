// Router: real paths, so that every page can be reloaded, saved and shared.

import { useMemo, useSyncExternalStore } from "react";

export interface Place {
  path: string;
  search: string;
}

const watchers = new Set<() => void>();
let place: Place = read();

function read(): Place {
  if (typeof location === "undefined") return { path: "/", search: "" };
  return { path: location.pathname, search: location.search };
}

function tell(): void {
  place = read();
  for (const notify of watchers) notify();
}

if (typeof window !== "undefined") window.addEventListener("popstate", tell);

export function go(to: string, replace = false): void {
  if (to === place.path + place.search) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  const moved = place.path !== location.pathname;
  tell();
  if (moved) window.scrollTo(0, 0);
}

export function usePlace(): Place {
  return useSyncExternalStore(
    (notify) => {
      watchers.add(notify);
      return () => watchers.delete(notify);
    },
    () => place,
  );
}

export function useSearch(): URLSearchParams {
  const { search } = usePlace();
  return useMemo(() => new URLSearchParams(search), [search]);
}

/** Changes parts of the query string; an empty value removes one. */
export function setSearch(changes: Record<string, string>, replace = true): void {
  const search = new URLSearchParams(place.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value) search.set(key, value);
    else search.delete(key);
  }
  const text = search.toString();
  go(text ? `${place.path}?${text}` : place.path, replace);
}

/** Matches a path with a pattern such as `/ui/jobs/{id}`: the values in braces, or null. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = path.replace(/\/+$/, "").split("/");
  if (pattern === "/") return path === "/" ? {} : null;
  if (wanted.length !== given.length) return null;
  const found: Record<string, string> = {};
  for (const [at, part] of wanted.entries()) {
    const have = given[at] ?? "";
    if (part.startsWith("{")) {
      if (!have) return null;
      try {
        found[part.slice(1, -1)] = decodeURIComponent(have);
      } catch {
        return null;
      }
    } else if (part !== have) return null;
  }
  return found;
}

export const pageOf = {
  overview: "/",
  jobs: (search = "") => (search ? `/ui/jobs?${search}` : "/ui/jobs"),
  job: (id: string) => `/ui/jobs/${encodeURIComponent(id)}`,
  workers: "/ui/workers",
  worker: (id: string) => `/ui/workers/${encodeURIComponent(id)}`,
  timeline: "/ui/timeline",
  queues: "/ui/queues",
  schedules: "/ui/schedules",
  schedule: (id: string) => `/ui/schedules/${encodeURIComponent(id)}`,
  triggers: "/ui/triggers",
  trigger: (id: string) => `/ui/triggers/${encodeURIComponent(id)}`,
  alerts: "/ui/alerts",
  alert: (name: string) => `/ui/alerts/${encodeURIComponent(name)}`,
  simulate: "/ui/simulate",
  deadLetters: "/ui/dead-letters",
  settings: "/ui/settings",
};
