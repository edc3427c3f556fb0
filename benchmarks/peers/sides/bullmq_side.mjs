// BullMQ's side: bulk additions and a concurrency of 100 in one process; completed jobs are kept.

import { createRequire } from "node:module";

const load = createRequire(`${process.env.PEERS_NODE}/`);
const { Queue, Worker } = load("bullmq");
const BATCH = 1000;
const connection = {
  host: "127.0.0.1",
  port: Number(process.env.PEERS_REDIS_PORT),
  maxRetriesPerRequest: null,
};

export async function work(bell) {
  const deeds = { noop: () => {}, spin: () => bell.spin(), ring: () => bell.ring() };
  const worker = new Worker("peers", async (job) => deeds[job.name](), {
    connection,
    concurrency: 100,
  });
  await worker.waitUntilReady();
}

export async function open() {
  const queue = new Queue("peers", { connection });
  let rung = 0;
  return {
    pour: async (kind, count) => {
      for (let first = 0; first < count; first += BATCH) {
        const size = Math.min(BATCH, count - first);
        await queue.addBulk(Array.from({ length: size }, () => ({ name: kind, data: {} })));
      }
    },
    call: async () => {
      rung += 1;
      await queue.add("ring", {});
    },
    recorded: async () => (await queue.getCompletedCount()) - rung,
  };
}
