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

export async function work(signal) {
  const kinds = { noop: () => {}, spin: () => signal.spin(), pickup: () => signal.send() };
  const worker = new Worker("peers", async (job) => kinds[job.name](), {
    connection,
    concurrency: 100,
  });
  await worker.waitUntilReady();
}

export async function open() {
  const queue = new Queue("peers", { connection });
  let started = 0;
  return {
    submitJobs: async (kind, count) => {
      for (let first = 0; first < count; first += BATCH) {
        const size = Math.min(BATCH, count - first);
        await queue.addBulk(Array.from({ length: size }, () => ({ name: kind, data: {} })));
      }
    },
    call: async () => {
      started += 1;
      await queue.add("pickup", {});
    },
    recorded: async () => (await queue.getCompletedCount()) - started,
  };
}
