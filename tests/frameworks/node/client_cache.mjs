// node-redis's client-side cache as it is: reads are answered from the cache until the
// server tells that a key has changed, been flushed or expired, and then no longer.

import { BasicClientSideCache, createClient } from "redis";
import { connection, pause, report, until } from "./account.mjs";

const socket = { host: connection.host, port: connection.port };
const cache = new BasicClientSideCache({ ttl: 0, maxEntries: 0 });
const reader = await createClient({ socket, RESP: 3, clientSideCache: cache }).connect();
const writer = await createClient({ socket }).connect();

let put = 0;
let lost = 0;
function check(right, what) {
  put += 1;
  if (right) return;
  lost += 1;
  console.error(what);
}

/** Reads until it sees the value: what was cached before must go. */
async function sees(read, wanted, what) {
  for (let turn = 0; turn < 2000; turn++) {
    if (JSON.stringify(await read()) === JSON.stringify(wanted)) return check(true);
    await pause(5);
  }
  check(false, `${what}: not ${JSON.stringify(wanted)}`);
}

const reads = async () => Number(/cmdstat_get:calls=(\d+)/.exec(await writer.info("commandstats"))?.[1] ?? 0);
const numbers = Array.from({ length: 50 }, (_, i) => i);
const goesOn = until();
for (let round = 0; round === 0 || goesOn(); round++) {
  await Promise.all(numbers.map((i) => writer.set(`k:${i}`, `${round}:${i}`)));
  for (const i of numbers) await sees(() => reader.get(`k:${i}`), `${round}:${i}`, "SET");
  const before = await reads();
  for (let turn = 0; turn < 10; turn++) {
    const values = await Promise.all(numbers.map((i) => reader.get(`k:${i}`)));
    check(values.every((value, i) => value === `${round}:${i}`), "cached values");
  }
  check((await reads()) === before, "reads of what is cached reach the server");
  await writer.hSet("h", "f", String(round));
  await sees(() => reader.hGet("h", "f"), String(round), "HSET");
  await writer.rename("k:1", "k:2");
  await sees(() => reader.get("k:1"), null, "RENAME, the old name");
  await sees(() => reader.get("k:2"), `${round}:1`, "RENAME, the new name");
  await writer.eval("return redis.call('SET', KEYS[1], ARGV[1])", { keys: ["k:3"], arguments: [`script ${round}`] });
  await sees(() => reader.get("k:3"), `script ${round}`, "EVAL");
  await writer.multi().del("k:4").set("k:5", "multi").exec();
  await sees(() => reader.get("k:4"), null, "DEL in MULTI");
  await sees(() => reader.get("k:5"), "multi", "SET in MULTI");
  await writer.pExpire("k:6", 20);
  await sees(() => reader.get("k:6"), null, "expiry");
  await writer.flushAll();
  await sees(() => reader.get("k:7"), null, "FLUSHALL");
  await sees(() => reader.hGet("h", "f"), null, "FLUSHALL of a hash");
}
check(cache.stats().hitCount >= 500, "hits");
report({ put, lost, twice: 0, hits: cache.stats().hitCount });
process.exit(0);
