// BullMQ as it is measured: jobs added one by one by some clients at once, then in bulk,
// then processed and kept when they are finished. `measure.py` reads the server's figures
// between the phases: this program says where one ends and waits for a line.

import { Queue, Worker } from "bullmq";
import readline from "node:readline";

const jobs = Number(process.env.JOBS);
const connection = { host: "127.0.0.1", port: Number(process.env.PORT), maxRetriesPerRequest: null };
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** What an order's job carries: fields as people have them, no two jobs alike. */
const data = (n) => ({
  orderId: 100_000 + n,
  customer: { id: (n * 7919) % 50_000, email: `user${(n * 31) % 50_000}@example.com`, locale: ["en", "de", "fr"][n % 3] },
  items: Array.from({ length: 1 + (n % 3) }, (_, i) => ({ sku: `SKU-${(n * 13 + i) % 9000}`, quantity: 1 + (i % 4), price: 199 + ((n * 17) % 5000) })),
  requestedAt: new Date(1_700_000_000_000 + n * 1377).toISOString(),
});

const phase = async (name, work) => {
  const began = performance.now();
  const done = await work();
  console.log(JSON.stringify({ phase: name, jobs: done, seconds: (performance.now() - began) / 1000 }));
  await lines.next();
};

const queue = new Queue("orders", { connection });
await queue.waitUntilReady();
await lines.next();
const single = Math.floor(jobs / 5);
await phase("add", async () => {
  let next = 0;
  const client = async () => {
    while (next < single) {
      const n = next++;
      await queue.add("order", data(n), { attempts: 3, backoff: { type: "exponential", delay: 1000 } });
    }
  };
  await Promise.all(Array.from({ length: 50 }, client));
  return single;
});
await phase("addBulk", async () => {
  for (let n = single; n < jobs; n += 100) {
    const numbers = Array.from({ length: Math.min(100, jobs - n) }, (_, i) => n + i);
    await queue.addBulk(numbers.map((n) => ({ name: "order", data: data(n), opts: { attempts: 3 } })));
  }
  return jobs - single;
});
await phase("process", async () => {
  let finished = 0;
  let all;
  const end = new Promise((resolve) => (all = resolve));
  const worker = new Worker("orders", async (job) => ({ ok: true, total: job.data.items.length * 199, at: job.data.requestedAt }), {
    connection,
    concurrency: 50,
  });
  worker.on("completed", () => ++finished === jobs && all());
  await end;
  await worker.close();
  return finished;
});
const counts = await queue.getJobCounts("completed", "failed", "wait");
console.log(JSON.stringify({ phase: "end", ...counts }));
process.exit(counts.completed === jobs ? 0 : 1);
