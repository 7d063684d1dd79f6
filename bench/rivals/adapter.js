// An adapter in JavaScript: the lines of ../adapter/adapter.h, for a rival that says how it acquires and releases.
//
// A rival is an object with `version`, `acquire(name, ttlMs, waitMs)` which resolves to what `release(lock)` takes, or to
// null if it was not had in that time, and `another()`: a further client, as if it were another process. A "thread" is a
// loop of its own: there is one thread.
'use strict';
const fs = require('fs');
const readline = require('readline');
const { setTimeout: sleep } = require('timers/promises');

const TTL_MS = 30000;
const WAIT_MS = 3600000;
const now = () => process.hrtime.bigint();

async function sleepUntil(at) {
  const left = Number(at - now()) / 1e6;
  if (left > 0) await sleep(left);
}

async function turns(rival, order, number, records) {
  const name = order.own === '1' ? `${order.name}/${number}` : order.name;
  const holdMs = Number(order.hold_us || 0) / 1000;
  const to = BigInt(order.to_ns);
  const end = to + 1000000n * BigInt(order.patience_ms);
  await sleepUntil(BigInt(order.from_ns));
  for (;;) {
    const asked = now();
    const lock = await rival.acquire(name, TTL_MS, Math.max(1, Math.ceil(Number(end - asked) / 1e6)));
    if (lock === null) {
      records.push(asked, 0n, 0n, now());
      return;
    }
    const granted = now();
    if (holdMs > 0) await sleep(holdMs);
    const releasing = now();
    await rival.release(lock);
    const done = now();
    records.push(asked, granted, releasing, done);
    if (done >= to) return;
  }
}

async function runTurns(rival, order) {
  const lists = [];
  for (let i = 0; i < Number(order.threads || 1); i++) lists.push([]);
  await Promise.all(lists.map((records, number) => turns(rival, order, number, records)));
  fs.writeFileSync(order.out, Buffer.from(BigInt64Array.from(lists.flat()).buffer));
}

async function hold(rival, order, held) {
  for (let i = 0; i < Number(order.count); i++) {
    held.push(await rival.acquire(`${order.name}/${i}`, Number(order.ttl_ms), WAIT_MS));
  }
}

function wait(rival, order) {
  for (let i = 0; i < Number(order.count); i++) {
    const client = rival.another();
    client.acquire(order.name, TTL_MS, WAIT_MS).then((lock) => client.release(lock));
  }
}

module.exports = async function main(rival) {
  const held = [];
  console.log(`ready ${rival.version}`);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.trim().split(/\s+/);
    const order = Object.fromEntries(words.map((word) => word.split(/=(.*)/s).slice(0, 2)));
    if (verb === 'quit') break;
    if (verb === 'turns') await runTurns(rival, order);
    else if (verb === 'hold') await hold(rival, order, held);
    else if (verb === 'wait') wait(rival, order);
    else {
      console.log('cannot');
      continue;
    }
    console.log('done');
  }
  for (const lock of held) await rival.release(lock);
  process.exit(0); // what still waits ends with the process
};
