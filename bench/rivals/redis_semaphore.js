// redis-semaphore as an adapter: its Mutex on one server, its RedlockMutex on several. It renews what it holds, and
// looks every 10 ms, which are its own settings.
'use strict';
const Redis = require('ioredis');
const { Mutex, RedlockMutex, TimeoutError } = require('redis-semaphore');
const main = require('./adapter.js');

function open(where) {
  const clients = where.split(',').map((address) => {
    const [host, port] = address.split(':');
    return new Redis({ host, port: Number(port) });
  });
  return {
    version: `redis-semaphore ${require('redis-semaphore/package.json').version}, ioredis ${require('ioredis/package.json').version}`,
    another: () => open(where),
    async acquire(name, ttlMs, waitMs) {
      const options = { lockTimeout: ttlMs, acquireTimeout: waitMs };
      const mutex =
        clients.length === 1 ? new Mutex(clients[0], name, options) : new RedlockMutex(clients, name, options);
      try {
        await mutex.acquire();
        return mutex;
      } catch (error) {
        if (error instanceof TimeoutError) return null;
        throw error;
      }
    },
    release: (mutex) => mutex.release(),
  };
}

main(open(process.argv[2]));
