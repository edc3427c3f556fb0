// A complete Rota worker on Node without dependencies: runs `command` jobs, several at once.
//
//   ROTA_URL=http://127.0.0.1:7070 ROTA_TOKEN=… node worker.ts
//
// Node 22.6 and 22.7 need --experimental-strip-types; older ones need the types taken out first.
// One call is open at a time, so each can name all that this worker has. A lease counts from the
// sending of the call that renewed it; when it cannot be renewed in time, this program ends the jobs,
// because the server is about to give them to somebody else.
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { hostname, tmpdir, uptime } from "node:os";
import { join } from "node:path";

type Task = { kind: string; argv?: string[]; env?: Record<string, string>; cwd?: string | null };
type Order = {
  execution_id: string; job_id: string; attempt: number; fence: number;
  task: Task | null; payload: unknown; timeout: number | null;
};
type Told = { executions?: Order[]; cancel: string[]; lost: string[] };
type Why = "cancelled" | "timed_out" | "lost";
type Run = { order: Order; child?: ChildProcess; stopped?: Why };

const SERVER = process.env.ROTA_URL ?? "http://127.0.0.1:7070";
const NAME = process.env.ROTA_NAME ?? `${hostname()}-node`;
const SLOTS = Number(process.env.ROTA_SLOTS ?? 4);
const GRACE_MS = 5_000;
const runs = new Map<string, Run>();
let me = { worker_id: "", session: "", heartbeat_interval: 5, lease_ttl: 15, poll_wait_max: 5 };
let renewedAt = 0; // by uptime(): seconds on a clock that runs through suspend
let draining = false;
let wake = () => {};

const nap = (ms: number) => new Promise<void>((done) => { setTimeout(done, ms); });
const say = (what: unknown) => console.error(what instanceof Error ? what.message : what);

class Refused extends Error {
  status: number;
  constructor(status: number, detail: string) { super(`${status}: ${detail}`); this.status = status; }
}

async function ask(method: string, path: string, body?: unknown, limitS = 10): Promise<any> {
  const raw = body instanceof Uint8Array;
  const answer = await fetch(SERVER + path, {
    method,
    headers: {
      Authorization: `Bearer ${process.env.ROTA_TOKEN ?? ""}`,
      "Content-Type": raw ? "application/octet-stream" : "application/json",
    },
    body: raw || body === undefined ? (body as BodyInit | undefined) : JSON.stringify(body),
    signal: AbortSignal.timeout(limitS * 1000),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Refused(answer.status, text.slice(0, 300));
  return text ? JSON.parse(text) : null;
}

// Every failure but a 4xx is retried: every call of a worker may be repeated.
async function insist(method: string, path: string, body: unknown): Promise<any> {
  for (let pauseMs = 200; ; pauseMs = Math.min(pauseMs * 2, 3_000)) {
    try { return await ask(method, path, body); } catch (error) {
      if (error instanceof Refused && error.status < 500 && error.status !== 429) throw error;
      await nap(pauseMs);
    }
  }
}

function end(pid: number | undefined, signal: NodeJS.Signals): void {
  try { if (pid) process.kill(-pid, signal); } catch { /* the whole group is gone already */ }
}

function stop(one: Run, why: Why): void {
  one.stopped ??= why;
  const pid = one.child?.pid; // none yet: `execute` looks once there is one
  end(pid, why === "lost" ? "SIGKILL" : "SIGTERM");
  setTimeout(() => { if (one.child?.exitCode === null) end(pid, "SIGKILL"); }, GRACE_MS).unref();
}

async function execute(one: Run, task: Task, env: NodeJS.ProcessEnv, cwd: string): Promise<number | string> {
  const { order } = one, [program = "", ...args] = task.argv ?? [];
  // A process group of its own, so that all it starts can be ended with it.
  const child = spawn(program, args, { cwd, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
  one.child = child;
  if (one.stopped) stop(one, one.stopped);
  const timer = order.timeout === null ? undefined : setTimeout(() => stop(one, "timed_out"), order.timeout * 1000);
  const path = `/executions/${order.execution_id}/logs?fence=${order.fence}&offset=`;
  let offset = 0, sending = Promise.resolve();
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data: Buffer) => {
    // Reading waits for sending: a large output is slowed down, not kept in memory.
    child.stdout.pause(); child.stderr.pause();
    sending = sending.then(() => insist("POST", path + offset, data)).catch(say).then(() => {
      offset += data.length;
      child.stdout.resume(); child.stderr.resume();
    });
  });
  child.on("exit", () => end(child.pid, "SIGKILL")); // what it left behind
  const code = await new Promise<number | string>((done) => {
    child.on("error", (error) => done(error.message));
    child.on("close", (code, signal) => done(code ?? signal ?? "nothing"));
  });
  clearTimeout(timer);
  await sending;
  return code;
}

async function run(one: Run): Promise<void> {
  const { order } = one, { task } = order;
  const folder = await mkdtemp(join(tmpdir(), "rota-"));
  const payload = join(folder, "payload.json"), result = join(folder, "result.json");
  const report: Record<string, unknown> = { fence: order.fence, status: "succeeded" };
  if (task?.kind === "command") {
    await writeFile(payload, JSON.stringify(order.payload));
    const code = await execute(one, task, {
      PATH: process.env.PATH, HOME: process.env.HOME, ...task.env,
      ROTA_JOB_ID: order.job_id, ROTA_EXECUTION_ID: order.execution_id, ROTA_WORKER: NAME,
      ROTA_ATTEMPT: `${order.attempt}`, ROTA_FENCE: `${order.fence}`,
      ROTA_PAYLOAD: payload, ROTA_RESULT: result,
    }, task.cwd ?? folder);
    if (typeof code === "number") report.exit_code = code;
    if (one.stopped) report.status = one.stopped;
    else if (code !== 0) Object.assign(report, { status: "failed", error: { message: `ended with ${code}` } });
    else report.result = await readFile(result, "utf8").then(JSON.parse).catch(() => null);
  } else if (task?.kind !== "noop") {
    Object.assign(report, { status: "failed", error: { message: "this worker runs commands only" } });
  }
  await rm(folder, { recursive: true, force: true });
  // Refused with 409: the lease was lost meanwhile, somebody else has the job, nothing was changed.
  if (one.stopped !== "lost") await insist("POST", `/executions/${order.execution_id}/complete`, report);
}

function obey(told: Told): void {
  for (const id of told.cancel) if (runs.has(id)) stop(runs.get(id)!, "cancelled");
  for (const id of told.lost) if (runs.has(id)) stop(runs.get(id)!, "lost");
  for (const order of told.executions ?? []) {
    const one: Run = { order };
    runs.set(order.execution_id, one);
    run(one).catch(say).finally(() => { runs.delete(order.execution_id); wake(); });
  }
}

async function register(): Promise<void> {
  const resources = { cpu: SLOTS, memory: "1GiB" };
  me = await insist("POST", "/workers/register", { name: NAME, capabilities: ["node"], resources });
  say(`registered as ${me.worker_id}`);
}

// One call: asks for work while there is free capacity, otherwise only renews leases.
async function turn(): Promise<void> {
  const held = [...runs.values()].map(({ order: { execution_id, fence } }) => ({ execution_id, fence }));
  const spec = { session: me.session, executions: held }, max = draining ? 0 : SLOTS - runs.size;
  const path = `/workers/${me.worker_id}`, wait = me.poll_wait_max, sentAt = uptime();
  if (max > 0) obey(await ask("POST", `${path}/lease`, { ...spec, max, wait }, wait + 3));
  else obey(await ask("POST", `${path}/heartbeat`, spec, 3));
  renewedAt = sentAt;
  const woken = new Promise<void>((done) => { wake = done; });
  if (max <= 0 && runs.size) await Promise.race([woken, nap(me.heartbeat_interval * 500)]);
}

process.on("SIGTERM", () => {
  say("drains");
  draining = true;
  ask("POST", `/workers/${me.worker_id}/drain`).catch(say); // an open call brings nothing more
});
await register();
while (!draining || runs.size > 0) {
  try { await turn(); } catch (error) {
    say(error);
    const status = error instanceof Refused ? error.status : 0;
    // The margin allows for clocks that differ in speed.
    const expired = status === 404 || uptime() - renewedAt > me.lease_ttl * 0.9;
    if (expired) for (const one of runs.values()) stop(one, "lost");
    if (status === 401 || status === 409) process.exit(1); // a wrong token; a newer worker took over
    if (status === 404) await register(); else await nap(300);
  }
}
await ask("DELETE", `/workers/${me.worker_id}`).catch(say);
say("drained");
process.exit(0);
