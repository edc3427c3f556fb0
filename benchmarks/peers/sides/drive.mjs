// Drives one system of Node.js: `node drive.mjs SIDE`, PEERS_LOAD in, figures as JSON out; with a
// second word `work` it is the worker, with `prepare` it makes the tables. What a side must have is
// described in drive.py. Here it exports `open(signal)` that answers { submitJobs, call, recorded }, and
// `work(signal)`, and `prepare()` if there is something to make.

import dgram from "node:dgram";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

const IDLE_MS = 20;
const LOOK_MS = 20;
const SETTLE_MS = 300;
const WARM = 200;
const WARM_CALLS = 3;
const PATIENCE_MS = 300_000;
const PORT = Number(process.env.PEERS_SIGNAL_PORT);

const out = dgram.createSocket("udp4");
const signal = {
  send: () => new Promise((sent) => out.send("runs", PORT, "127.0.0.1", sent)),
  spin: () => {
    const from = process.cpuUsage();
    for (;;) {
      const { user, system } = process.cpuUsage(from);
      if (user + system >= 1000) return;
    }
  },
};

async function pickups(side, calls) {
  const receiver = dgram.createSocket("udp4");
  await new Promise((bound) => receiver.bind(PORT, "127.0.0.1", bound));
  const taken = [];
  for (let number = 0; number < calls + WARM_CALLS; number += 1) {
    await sleep(IDLE_MS);
    const started = new Promise((received) => receiver.once("message", received));
    const sent = performance.now();
    await side.call();
    await started;
    if (number >= WARM_CALLS) taken.push(performance.now() - sent);
  }
  receiver.close();
  return taken;
}

async function until(side, wanted) {
  const deadline = performance.now() + PATIENCE_MS;
  for (;;) {
    const done = await side.recorded();
    if (done >= wanted) return;
    if (performance.now() > deadline) throw new Error(`${wanted - done} jobs are missing`);
    await sleep(LOOK_MS);
  }
}

async function together(side, kind, count) {
  await sleep(SETTLE_MS);
  const before = await side.recorded();
  const began = performance.now();
  await side.submitJobs(kind, count);
  await until(side, before + count);
  return (performance.now() - began) / 1000;
}

async function drained(side, group, count) {
  await sleep(SETTLE_MS);
  const before = await side.recorded();
  process.kill(-group, "SIGSTOP");
  await side.submitJobs("noop", count);
  const began = performance.now();
  process.kill(-group, "SIGCONT");
  await until(side, before + count);
  return (performance.now() - began) / 1000;
}

async function drive(side) {
  const load = JSON.parse(process.env.PEERS_LOAD);
  const group = Number(process.env.PEERS_WORKER ?? 0);
  await together(side, "noop", WARM);
  const figures = {};
  if (load.lives) figures.steady_s = load.lives / (await together(side, "noop", load.lives));
  if (load.calls) figures.pickup_ms = await pickups(side, load.calls);
  if (load.spins) figures.spins_s = load.spins / (await together(side, "spin", load.spins));
  if (load.lives && group) {
    figures.drain_s = load.lives / (await drained(side, group, load.lives));
  }
  process.stdout.write(`${JSON.stringify(figures)}\n`, () => process.exit(0));
}

const side = await import(`./${process.argv[2]}.mjs`);
if (process.argv[3] === "work") await side.work(signal);
else if (process.argv[3] === "prepare") await side.prepare();
else await drive(await side.open(signal));
