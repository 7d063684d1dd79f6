// node-redlock as an adapter, on one server or on several. Its own settings (it looks again after 200 ms and a random
// part), but that it never gives up. It does not renew by itself.
'use strict';
const Redis = require('ioredis');
const Redlock = require('redlock');
const main = require('./adapter.js');

function open(where) {
  const clients = where.split(',').map((address) => {
    const [host, port] = address.split(':');
    return new Redis({ host, port: Number(port) });
  });
  const redlock = new Redlock(clients, { retryCount: -1 });
  redlock.on('clientError', () => {}); // a name that is held is such an error to it
  return {
    version: `redlock ${require('redlock/package.json').version}, ioredis ${require('ioredis/package.json').version}`,
    another: () => open(where),
    acquire: (name, ttlMs) => redlock.lock(name, ttlMs),
    release: (lock) => lock.unlock(),
  };
}

main(open(process.argv[2]));
