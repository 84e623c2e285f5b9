// BullMQ: delays, priorities, retries, a rate limit, flows, repeated jobs, bulk, events,
// and a worker that dies with jobs in hand, which become stalled and are done by another.

import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";
import { connection, counts, done, firstTime, pause, settle, until, waitFor } from "./account.mjs";

const queue = new Queue("jobs", { connection });
const limited = new Queue("limited", { connection });
const parents = new Queue("parents", { connection });
const flows = new FlowProducer({ connection });
const events = new QueueEvents("jobs", { connection });
let completed = 0;
events.on("completed", () => completed++);

const work = async (job) => {
  const { number, fails } = job.data;
  if (fails && firstTime(number)) throw new Error("once");
  done(number);
  await job.updateProgress(100);
  return number * 2;
};

const options = { connection, concurrency: 8, stalledInterval: 500, lockDuration: 1500 };
const workers = [new Worker("jobs", work, options), new Worker("jobs", work, options)];
let inHand = 0;
const starts = [];
workers.push(
  new Worker("limited", async (job) => (starts.push(Date.now()), done(job.data.number, "limited")), {
    connection,
    limiter: { max: 20, duration: 200 },
  }),
);
let wrongSums = 0;
workers.push(
  new Worker("parents", async (job) => {
    const values = Object.values(await job.getChildrenValues());
    if (values.length !== job.data.children || values.reduce((a, b) => a + b, 0) !== job.data.sum) wrongSums++;
    done(job.data.number, "parents");
  }, { connection }),
);
// A worker that takes jobs and never finishes: closed by force, its jobs are stalled.
const dying = new Worker("jobs", () => (inHand++, new Promise(() => {})), { ...options, concurrency: 4 });
for (const worker of [...workers, dying]) worker.on("error", (error) => console.error(error.message));

await queue.upsertJobScheduler("tick", { every: 200 }, { name: "tick", data: { number: -1 } });

let put = 0;
let parent = 0;
let slow = 0;
const goesOn = until();
const bulk = (numbers) =>
  queue.addBulk(
    numbers.map((number) => ({
      name: "job",
      data: { number, fails: number % 17 === 0, text: "a job's data " + number },
      opts: {
        attempts: 4,
        backoff: { type: "exponential", delay: 50 },
        delay: number % 23 === 0 ? 400 : undefined,
        priority: number % 5 === 0 ? (number % 9) + 1 : undefined,
        removeOnComplete: number % 2 === 0,
      },
    })),
  );
while (goesOn()) {
  const numbers = Array.from({ length: 20 }, () => put++);
  await bulk(numbers);
  const children = Array.from({ length: 3 }, () => put++);
  await flows.add({
    name: "parent",
    queueName: "parents",
    data: { number: parent++, children: 3, sum: children.reduce((a, b) => a + 2 * b, 0) },
    children: children.map((number) => ({ name: "child", queueName: "jobs", data: { number } })),
  });
  if (slow < 60) await limited.addBulk(Array.from({ length: 10 }, () => ({ name: "l", data: { number: slow++ } })));
  await pause(5);
  if (inHand && !dying.closing) dying.close(true);
}
if (!dying.closing) dying.close(true);
await waitFor(slow, "limited");
await waitFor(parent, "parents");
await waitFor(put + 1); // the ticks are number -1
const ticks = counts().get(-1) ?? 0;
await queue.removeJobScheduler("tick");
counts().delete(-1);
// No window of 200 ms may hold much more than its limit and the next one's.
let crowded = 0;
for (let i = 0; i + 41 < starts.length; i++) if (starts[i + 41] - starts[i] < 190) crowded++;
const failed = await queue.getFailedCount();
await settle(put, {
  lostLimited: slow - counts("limited").size,
  lostParents: parent - counts("parents").size,
  wrongSums,
  crowded,
  failed,
  ticks,
  completed,
  inHand,
});
process.exit(
  counts("limited").size === slow && counts("parents").size === parent && !wrongSums && !crowded && !failed && ticks > 1 && completed > 0
    ? 0
    : 1,
);
