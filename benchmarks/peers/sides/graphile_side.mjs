// graphile-worker's side, with the settings of its own performance test: jobs are fetched 500 at a
// time into a local queue, and completions go in batches. It deletes a job that has succeeded.

import { createRequire } from "node:module";

const load = createRequire(`${process.env.PEERS_NODE}/`);
const { run, makeWorkerUtils } = load("graphile-worker");
const { Pool } = load("pg");
const BATCH = 1000;
const connectionString = process.env.PEERS_DSN;

export async function prepare() {
  const utils = await makeWorkerUtils({ connectionString });
  await utils.migrate();
  await utils.release();
}

export async function work(signal) {
  await run({
    connectionString,
    taskList: { noop: async () => {}, spin: async () => signal.spin(), pickup: () => signal.send() },
    preset: {
      worker: {
        concurrentJobs: 24,
        maxPoolSize: 25,
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
      },
    },
  });
}

export async function open() {
  const utils = await makeWorkerUtils({ connectionString });
  const pool = new Pool({ connectionString, max: 1 });
  let poured = 0;
  return {
    submitJobs: async (kind, count) => {
      poured += count;
      for (let first = 0; first < count; first += BATCH) {
        const size = Math.min(BATCH, count - first);
        await utils.addJobs(Array.from({ length: size }, () => ({ identifier: kind })));
      }
    },
    call: () => utils.addJob("pickup", {}),
    recorded: async () => {
      const sql = "SELECT count(*)::int AS left FROM graphile_worker._private_jobs";
      return poured - (await pool.query(sql)).rows[0].left;
    },
  };
}
