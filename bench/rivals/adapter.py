"""An adapter in Python: the lines of ../adapter/adapter.h, for a rival that says how it acquires and releases.

A rival is an object with `version`, `worker()` (what a thread needs), `acquire(worker, name, ttl_s, wait_s)` which returns
what `release(lock)` takes, or None if it was not had in that time, and `another()`: a further client, as if it were
another process."""

import struct
import sys
import threading
import time

TTL_S = 30.0
WAIT_S = 3600.0
now_ns = time.monotonic_ns


def sleep_until(at_ns):
    if (left := at_ns - now_ns()) > 0:
        time.sleep(left / 1e9)


def turns(rival, worker, order, number, records):
    name = f"{order['name']}/{number}" if order["own"] == "1" else order["name"]
    hold_s, to_ns = int(order["hold_us"]) / 1e6, int(order["to_ns"])
    end_ns = to_ns + 1000000 * int(order["patience_ms"])
    sleep_until(int(order["from_ns"]))
    while True:
        asked = now_ns()
        lock = rival.acquire(worker, name, TTL_S, max(end_ns - asked, 1) / 1e9)
        if lock is None:
            records.append((asked, 0, 0, now_ns()))
            return
        granted = now_ns()
        if hold_s > 0:
            time.sleep(hold_s)
        releasing = now_ns()
        rival.release(lock)
        done = now_ns()
        records.append((asked, granted, releasing, done))
        if done >= to_ns:
            return


def run_turns(rival, workers, order):
    threads, lists = int(order.get("threads", 1)), []
    while len(workers) < threads:
        workers.append(rival.worker())
    running = []
    for number in range(threads):
        lists.append([])
        running.append(threading.Thread(target=turns, args=(rival, workers[number], order, number, lists[-1])))
        running[-1].start()
    for thread in running:
        thread.join()
    with open(order["out"], "wb") as file:
        for records in lists:
            file.write(b"".join(struct.pack("=4q", *record) for record in records))


def hold(rival, order, held):
    worker = rival.worker()
    ttl_s = int(order["ttl_ms"]) / 1e3
    for number in range(int(order["count"])):
        held.append(rival.acquire(worker, f"{order['name']}/{number}", ttl_s, WAIT_S))


def wait(rival, order):
    def one(client):
        client.release(client.acquire(client.worker(), order["name"], TTL_S, WAIT_S))

    for _ in range(int(order["count"])):
        threading.Thread(target=one, args=(rival.another(),), daemon=True).start()


def main(rival):
    workers, held = [], []
    print("ready", rival.version, flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        order = dict(word.split("=", 1) for word in words)
        if verb == "quit":
            break
        if verb == "turns":
            run_turns(rival, workers, order)
        elif verb == "hold":
            hold(rival, order, held)
        elif verb == "wait":
            wait(rival, order)
        else:
            print("cannot", flush=True)
            continue
        print("done", flush=True)
    sys.stdout.flush()
    for lock in held:
        rival.release(lock)
    # what still waits ends with the process
