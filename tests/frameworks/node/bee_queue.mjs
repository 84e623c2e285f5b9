// bee-queue: delays, retries, concurrency, events.

import Queue from "bee-queue";
import { connection, done, firstTime, settle, until } from "./account.mjs";

const options = { redis: { host: connection.host, port: connection.port }, activateDelayedJobs: true, stallInterval: 2000 };
const queue = new Queue("jobs", options);
const workers = [new Queue("jobs", options), new Queue("jobs", options)];
for (const worker of workers) {
  worker.process(5, async (job) => {
    if (job.data.fails && firstTime(job.data.number)) throw new Error("once");
    done(job.data.number);
    return job.data.number * 2;
  });
}
let put = 0;
const goesOn = until();
while (goesOn()) {
  const number = put++;
  const job = queue.createJob({ number, fails: number % 17 === 0 }).retries(3);
  if (number % 23 === 0) job.delayUntil(Date.now() + 400);
  await job.save();
}
await settle(put);
process.exit(0);
