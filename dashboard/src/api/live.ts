// Refreshes visible data: the stream reports that something changed, and visible queries are read again.
//
// Each query says how old its data may get. It is read again when the data is that old and the journal has grown
// since. After a suspend, all queries are read again.

import { QueryClient } from "@tanstack/react-query";
import type { SampleView, StatsView } from "./schema.gen";

/** A digest of the stream; without statistics where the server has none. */
export interface Digest {
  seq: number;
  stats: StatsView | null;
  sample: SampleView | null;
}

export type LineState = "connecting" | "live" | "lost";

const TICK_MS = 500;
/** A digest comes at least every sixteen seconds; a connection that is silent for longer is dead. */
const SILENCE_MS = 40_000;
/** A tick that is this late means that the machine was suspended. */
const SLEPT_MS = 10_000;
/** Some data changes without a journal record: heartbeats, durations. */
const OLDEST_MS = 15_000;

export const client = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (count, error) => (error as { status?: number }).status === 0 && count < 3,
      refetchOnWindowFocus: false,
      staleTime: 1_000,
      gcTime: 120_000,
    },
  },
});

export class Line {
  state: LineState = "connecting";
  digest: Digest | null = null;
  /** Grows whenever something may have changed. */
  private moves = 0;
  private readonly readAt = new Map<string, number>();
  private heardAt = 0;
  private tickedAt = 0;
  private source: EventSource | null = null;
  private timer: ReturnType<typeof setInterval> | null = null;
  private readonly watchers = new Set<() => void>();

  watch = (notify: () => void): (() => void) => {
    this.watchers.add(notify);
    return () => this.watchers.delete(notify);
  };

  open(): void {
    this.close();
    // EventSource sends Last-Event-ID itself when it reconnects.
    const source = new EventSource("/stream?digest=true");
    this.source = source;
    this.heardAt = Date.now();
    this.tickedAt = Date.now();
    source.onopen = () => this.become("live");
    source.addEventListener("digest", (event) => this.onDigest(event as MessageEvent<string>));
    // A gateway sends every change instead of digests; here it only matters that something changed.
    source.onmessage = () => {
      this.heardAt = Date.now();
      this.moves += 1;
    };
    source.addEventListener("reset", () => this.readAll());
    source.onerror = () => {
      this.become("lost");
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.open(), 3_000);
    };
    document.addEventListener("visibilitychange", this.wake);
    this.timer = setInterval(() => this.tick(), TICK_MS);
  }

  close(): void {
    this.source?.close();
    this.source = null;
    document.removeEventListener("visibilitychange", this.wake);
    if (this.timer !== null) clearInterval(this.timer);
  }

  /** After an action of the user: reads all visible data again at once. */
  readAll(): void {
    this.readAt.clear();
    this.moves += 1;
    this.refresh(true);
  }

  private readonly wake = () => {
    if (document.visibilityState === "visible") this.readAll();
  };

  private onDigest(event: MessageEvent<string>): void {
    const digest = JSON.parse(event.data) as Digest;
    this.heardAt = Date.now();
    if (digest.seq !== this.digest?.seq) this.moves += 1;
    this.digest = digest;
    this.become("live");
  }

  private tick(): void {
    const now = Date.now();
    const slept = now - this.tickedAt > SLEPT_MS && document.visibilityState === "visible";
    this.tickedAt = now;
    if (slept || now - this.heardAt > SILENCE_MS) {
      this.open();
      this.readAll();
    } else this.refresh();
  }

  private become(state: LineState): void {
    this.state = state;
    for (const notify of this.watchers) notify();
  }

  private refresh(now = false): void {
    if (document.visibilityState !== "visible") return;
    for (const query of client.getQueryCache().findAll({ type: "active" })) {
      const every = query.meta?.every;
      if (typeof every !== "number" || query.state.fetchStatus !== "idle") continue;
      const age = Date.now() - Math.max(query.state.dataUpdatedAt, query.state.errorUpdatedAt);
      const moved = (this.readAt.get(query.queryHash) ?? -1) < this.moves;
      if (now || (moved && age >= every) || age >= Math.max(OLDEST_MS, every)) {
        this.readAt.set(query.queryHash, this.moves);
        query.fetch().catch(() => undefined);
      }
    }
  }
}

export const line = new Line();
