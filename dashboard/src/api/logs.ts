// Reads an execution's log in parts, and follows one that still grows.

import { LogWindow } from "../lib/logWindow";
import { send } from "./client";

const PIECE_BYTES = 1024 * 1024;
const TAIL_LINES = 2_000;
const AGAIN_MS = 2_000;

export type LogState = "loading" | "following" | "ended" | "lost";

/** One log: opens at the end, fetches earlier parts on request. */
export class LogReader {
  window = new LogWindow();
  size = 0;
  state: LogState = "loading";
  trouble: Error | null = null;
  private busy = false;
  private readonly stop = new AbortController();

  constructor(
    private readonly executionId: string,
    private readonly live: boolean,
    /** Called when there are more lines; `shift` of them were added at the beginning. */
    private readonly changed: (shift: number) => void,
  ) {}

  async open(): Promise<void> {
    try {
      const answer = await send("GET /executions/{execution_id}/logs", {
        path: { execution_id: this.executionId },
        query: { tail: TAIL_LINES, limit: 4 * PIECE_BYTES },
        signal: this.stop.signal,
      });
      this.window = new LogWindow(Number(answer.headers.get("Rota-Log-Offset") ?? 0));
      this.window.append(new Uint8Array(await answer.arrayBuffer()));
      this.size = Math.max(this.window.end, Number(answer.headers.get("Rota-Log-Size") ?? 0));
      this.changed(0);
      if (this.live) await this.follow();
      else this.become("ended");
    } catch (error) {
      this.fail(error);
    }
  }

  close(): void {
    this.stop.abort();
  }

  get atStart(): boolean {
    return this.window.start === 0;
  }

  /** Fetches the part before the window; returns the number of new lines. */
  async earlier(): Promise<number> {
    if (this.busy || this.atStart) return 0;
    this.busy = true;
    try {
      const start = Math.max(0, this.window.start - PIECE_BYTES);
      const answer = await send("GET /executions/{execution_id}/logs", {
        path: { execution_id: this.executionId },
        query: { offset: start, limit: this.window.start - start },
        signal: this.stop.signal,
      });
      const added = this.window.prepend(new Uint8Array(await answer.arrayBuffer()));
      this.changed(added);
      return added;
    } catch (error) {
      this.fail(error);
      return 0;
    } finally {
      this.busy = false;
    }
  }

  private async follow(): Promise<void> {
    this.become("following");
    while (!this.stop.signal.aborted) {
      try {
        const answer = await send("GET /executions/{execution_id}/logs", {
          path: { execution_id: this.executionId },
          query: { follow: true, offset: this.window.end },
          signal: this.stop.signal,
        });
        await this.take(answer);
        this.become("ended");
        return;
      } catch (error) {
        if (this.stop.signal.aborted) return;
        // The connection was lost: continue after the last byte received.
        this.become("lost");
        if ((error as { status?: number }).status === 404) return;
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        this.become("following");
      }
    }
  }

  private async take(answer: Response): Promise<void> {
    const reader = answer.body?.getReader();
    if (!reader) return;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      this.window.append(value);
      this.size = Math.max(this.size, this.window.end);
      this.changed(0);
    }
  }

  private become(state: LogState): void {
    this.state = state;
    this.changed(0);
  }

  private fail(error: unknown): void {
    if (this.stop.signal.aborted) return;
    this.trouble = error as Error;
    this.become("lost");
  }
}
