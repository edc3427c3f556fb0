// pg-boss's side: wide batches, polled as often as it allows. Jobs are kept until they are archived.

import { createRequire } from "node:module";

const load = createRequire(`${process.env.PEERS_NODE}/`);
const PgBoss = load("pg-boss");
const { Pool } = load("pg");
const BATCH = 1000;
const KINDS = ["noop", "spin", "pickup"];
const connectionString = process.env.PEERS_DSN;

async function started(supervise) {
  const boss = new PgBoss({ connectionString, schedule: false, supervise });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

export async function prepare() {
  const boss = await started(false);
  for (const kind of KINDS) await boss.createQueue(kind);
  await boss.stop();
}

export async function work(signal) {
  const boss = await started(true);
  const options = { batchSize: 2000, pollingIntervalSeconds: 0.5 };
  await boss.work("noop", options, async () => {});
  await boss.work("spin", options, async (jobs) => jobs.forEach(() => signal.spin()));
  await boss.work("pickup", options, () => signal.send());
}

export async function open() {
  const boss = await started(false);
  const pool = new Pool({ connectionString, max: 1 });
  return {
    submitJobs: async (kind, count) => {
      for (let first = 0; first < count; first += BATCH) {
        const size = Math.min(BATCH, count - first);
        await boss.insert(Array.from({ length: size }, () => ({ name: kind })));
      }
    },
    call: () => boss.send("pickup", {}),
    recorded: async () => {
      const sql =
        "SELECT count(*)::int AS done FROM pgboss.job WHERE state = 'completed' AND name <> 'pickup'";
      return (await pool.query(sql)).rows[0].done;
    },
  };
}
