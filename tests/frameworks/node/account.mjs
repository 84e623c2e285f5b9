// What the programs of this folder share; the same account as python/account.py keeps.

import fs from "node:fs";
import path from "node:path";

export const port = Number(process.env.PORT);
export const seconds = Number(process.env.SECONDS);
const folder = process.env.FOLDER;
const drainSeconds = 90;

export const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** How often each job has done its work, by ledger. */
const ledgers = new Map();

export function done(job, ledger = "done") {
  const counts = ledgers.get(ledger) ?? ledgers.set(ledger, new Map()).get(ledger);
  counts.set(job, (counts.get(job) ?? 0) + 1);
}

export const counts = (ledger = "done") => ledgers.get(ledger) ?? new Map();

const tried = new Set();

/** Whether nobody has asked this of the job before. */
export function firstTime(job) {
  if (tried.has(job)) return false;
  tried.add(job);
  return true;
}

export async function waitFor(number, ledger = "done") {
  const end = Date.now() + drainSeconds * 1000;
  while (Date.now() < end && counts(ledger).size < number) await pause(20);
}

export async function settle(put, more = {}, ledger = "done") {
  await waitFor(put, ledger);
  const found = counts(ledger);
  let lost = 0;
  for (let job = 0; job < put; job++) if (!found.has(job)) lost++;
  report({ put, lost, twice: [...found.values()].filter((n) => n > 1).length, ...more });
}

export function report(account) {
  fs.writeSync(1, "ACCOUNT " + JSON.stringify(account) + "\n");
}

export function until() {
  const end = Date.now() + seconds * 1000;
  return () => Date.now() < end;
}

export const file = (name) => path.join(folder, name);
