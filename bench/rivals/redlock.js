// node-redlock as an adapter, on one server or on several. It looks again after 200 ms and a random
// part, which are its own settings, or after REDLOCK_RETRY_MS and half as much. It does not renew by itself.
'use strict';
const Redis = require('ioredis');
const Redlock = require('redlock');
const main = require('./adapter.js');

const RETRY_MS = Number(process.env.REDLOCK_RETRY_MS || 200);

function open(where) {
  const clients = where.split(',').map((address) => {
    const [host, port] = address.split(':');
    return new Redis({ host, port: Number(port) });
  });
  const redlock = new Redlock(clients, { retryDelay: RETRY_MS, retryJitter: RETRY_MS / 2 }); // 200 and 100 are its own
  redlock.on('clientError', () => {}); // a name that is held is such an error to it
  return {
    version: `redlock ${require('redlock/package.json').version}, ioredis ${require('ioredis/package.json').version}`,
    another: () => open(where),
    async acquire(name, ttlMs, waitMs) {
      try {
        return await redlock.lockWithOptions(name, ttlMs, { retryCount: Math.ceil(waitMs / RETRY_MS) });
      } catch (error) {
        if (error instanceof Redlock.LockError) return null;
        throw error;
      }
    },
    release: (lock) => lock.unlock(),
  };
}

main(open(process.argv[2]));
