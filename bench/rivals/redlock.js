// node-redlock as an adapter, on one server or on several. It looks again after 200 ms, less or more by a random time up to 100 ms,
// which are its own settings; or after REDLOCK_RETRY_MS, less or more by up to half of it. It does not renew by itself.
'use strict';
const Redis = require('ioredis');
const Redlock = require('redlock');
const main = require('./adapter.js');

const RETRY_MS = Number(process.env.REDLOCK_RETRY_MS || 200);
const JITTER_MS = RETRY_MS / 2; // 200 and 100 are its own

function open(where) {
  const clients = where.split(',').map((address) => {
    const [host, port] = address.split(':');
    return new Redis({ host, port: Number(port) });
  });
  const redlock = new Redlock(clients, { retryDelay: RETRY_MS, retryJitter: JITTER_MS });
  redlock.on('clientError', () => {}); // a name that is held is such an error to it
  return {
    version: `redlock ${require('redlock/package.json').version}, ioredis ${require('ioredis/package.json').version}`,
    another: () => open(where),
    async acquire(name, ttlMs, waitMs) {
      const retryCount = Math.ceil(waitMs / (RETRY_MS - JITTER_MS)); // so that it does not give up before
      try {
        return await redlock.lockWithOptions(name, ttlMs, { retryCount });
      } catch (error) {
        if (error instanceof Redlock.LockError) return null;
        throw error;
      }
    },
    release: (lock) => lock.unlock(),
  };
}

main(open(process.argv[2]));
