// ioredis with its automatic pipelining and node-redis with its own: many calls at once
// over one connection, each answered with its own reply; scripts, transactions, streams,
// pub/sub and buffers of any bytes.

import { randomBytes } from "node:crypto";
import Redis from "ioredis";
import { createClient, RESP_TYPES } from "redis";
import { connection, report, until } from "./account.mjs";

const io = new Redis({ ...connection, enableAutoPipelining: true });
const node = await createClient({ socket: { host: connection.host, port: connection.port }, RESP: 3 }).connect();
const bytes = node.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
io.defineCommand("getThenSet", {
  numberOfKeys: 1,
  lua: "local old = redis.call('GET', KEYS[1]); redis.call('SET', KEYS[1], ARGV[1]); return old",
});

let put = 0;
let wrong = 0;
const check = (right) => ((put += 1), right || (wrong += 1));
const heard = [];
const ear = node.duplicate();
await ear.connect();
await ear.subscribe("news", (message) => heard.push(message));

const goesOn = until();
let rounds = 0;
for (let round = 0; goesOn(); round = rounds) {
  const numbers = Array.from({ length: 200 }, (_, i) => i);
  await Promise.all(numbers.map((i) => io.set(`io:${i}`, `${round}:${i}`)));
  (await Promise.all(numbers.map((i) => io.get(`io:${i}`)))).forEach((reply, i) => check(reply === `${round}:${i}`));
  (await Promise.all(numbers.map((i) => io.getThenSet(`io:${i}`, `new ${i}`)))).forEach((reply, i) => check(reply === `${round}:${i}`));
  const random = numbers.map((i) => randomBytes(i * 3));
  await Promise.all(random.map((value, i) => bytes.set(`b:${i}`, value)));
  (await Promise.all(numbers.map((i) => bytes.get(`b:${i}`)))).forEach((reply, i) => check(reply.equals(random[i])));
  await Promise.all(numbers.map((i) => node.hSet(`h:${i % 10}`, `f${i}`, i)));
  check(Object.keys(await node.hGetAll("h:3")).length === 20);
  const [length, range] = await node.multi().rPush(`l:${round}`, ["a", "b"]).lRange(`l:${round}`, 0, -1).exec();
  check(length === 2 && range.join() === "a,b");
  const id = await io.xadd("stream", "*", "round", round);
  check((await io.xrange("stream", id, id))[0][1].join() === `round,${round}`);
  await node.zAdd("z", numbers.map((i) => ({ score: i, value: `m${i}` })));
  check((await node.zRangeWithScores("z", 0, 2)).map((e) => e.score).join() === "0,1,2");
  await node.publish("news", String(round));
  rounds++;
}
while (heard.length < rounds) await new Promise(setImmediate);
check(heard.every((message, round) => message === String(round)));
report({ put, lost: wrong, twice: 0, heard: heard.length });
process.exit(0);
