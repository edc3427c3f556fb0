// A clock that ticks once a second, for texts such as "3 s ago".

import { useSyncExternalStore } from "react";

const watchers = new Set<() => void>();
let now = Date.now();
let timer: ReturnType<typeof setInterval> | null = null;

function watch(notify: () => void): () => void {
  watchers.add(notify);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const one of watchers) one();
  }, 1000);
  return () => {
    watchers.delete(notify);
    if (!watchers.size && timer !== null) {
      clearInterval(timer);
      timer = null;
    }
  };
}

export function useNow(): number {
  return useSyncExternalStore(watch, () => now);
}
