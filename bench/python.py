#!/usr/bin/env python3
"""python.py - what the Python package costs beside redis-py with hiredis, as ratios in one run, each with a verdict:

    PYTHON bench/python.py        PYTHON: one that has mortise, redis and hiredis

cycle         acquire and release, uncontended, one after the other: at least as fast as redis-py's Lock
cycle pinned  the same with the server and the client on one processor
tasks         1,000 asyncio tasks on 1,000 names, from one loop: at least three times as fast as redis-py's asyncio Lock
waiting       100 tasks that wait cost the server nothing between two ttls
import        takes less than 60 ms

The two take turns in short rounds, and the median of the rounds' ratios counts, so that a busy machine slows both down. A time is
the median of the rounds, too. Starts its own Redis server. Exit code 1: a verdict is "missed"."""
import asyncio
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS, CYCLES, TASKS, WAITING = 9, 400, 1000, 100


def cycles_mortise(client):
    for _ in range(CYCLES):
        with client.lock("bench-mortise"):
            pass


def cycles_redis(client):
    for _ in range(CYCLES):
        with client.lock("bench-redis-py", timeout=30):
            pass


async def tasks(lock_of):
    async def task(number):
        async with lock_of(number):
            pass

    await asyncio.gather(*(task(number) for number in range(TASKS)))


def timed(function, *arguments):
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin


def compare_cycles(port):
    """Prints two numbers: seconds of a cycle of ours, and the ratio."""
    import mortise
    import redis

    ours, theirs = mortise.open(f"redis://127.0.0.1:{port}"), redis.Redis(host="127.0.0.1", port=port)
    assert redis.utils.HIREDIS_AVAILABLE
    cycles_mortise(ours)
    cycles_redis(theirs)
    seconds, ratios = [], []
    for _ in range(ROUNDS):
        mine = timed(cycles_mortise, ours)
        seconds.append(mine / CYCLES)
        ratios.append(timed(cycles_redis, theirs) / mine)
    ours.close()
    print(statistics.median(seconds), statistics.median(ratios))


def compare_tasks(port):
    import mortise
    import redis.asyncio

    async def main():
        ours = mortise.open(f"redis://127.0.0.1:{port}")
        theirs = redis.asyncio.Redis(host="127.0.0.1", port=port, max_connections=2 * TASKS)
        seconds, ratios = [], []
        for number in range(-1, ROUNDS):
            begin = time.perf_counter()
            await tasks(lambda name: ours.alock(f"bench-mortise/{name}"))
            middle = time.perf_counter()
            await tasks(lambda name: theirs.lock(f"bench-redis-py/{name}", timeout=60))
            end = time.perf_counter()
            if number >= 0:  # the first round opens the connections
                seconds.append((middle - begin) / TASKS)
                ratios.append((end - middle) / (middle - begin))
        await theirs.close()
        await ours.aclose()
        print(statistics.median(seconds), statistics.median(ratios))

    asyncio.run(main())


def count_waiting(port):
    """Prints how many commands the server got in two seconds of the wait."""
    import mortise
    import redis

    server = redis.Redis(host="127.0.0.1", port=port)

    def commands():
        return sum(row["calls"] for name, row in server.info("commandstats").items() if name != "cmdstat_info")

    async def main():
        ours, other = (mortise.open(f"redis://127.0.0.1:{port}?ttl=60s") for _ in range(2))
        async with other.alock("bench-waiting"):
            waiting = [asyncio.create_task(ours.alock("bench-waiting").acquire()) for _ in range(WAITING)]
            while ours.stats().waiting < WAITING or not ours.inspect("bench-waiting").waiters:
                await asyncio.sleep(0.01)
            before = commands()
            await asyncio.sleep(2)
            print(commands() - before)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        await ours.aclose()
        await other.aclose()

    asyncio.run(main())


def measure_import():
    print(timed(__import__, "mortise"))


PARTS = {"cycle": compare_cycles, "tasks": compare_tasks, "waiting": count_waiting}


def run(part, port, *before):
    """In a process of its own."""
    done = subprocess.run([*before, sys.executable, __file__, part, str(port)], stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def verdict(name, text, good):
    print(f"{name:14} {text:64} {'ok' if good else 'missed'}", flush=True)
    return good


class Server:
    def __init__(self, folder):
        self.folder = folder
        self.port = int(dict(line.split("=") for line in self.do("start", f"guard={os.getpid()}").splitlines())["PORT"])
        with open(f"{folder}/1.pid", encoding="ascii") as file:
            self.pid = int(file.read().split()[0])

    def do(self, verb, *words):
        return subprocess.run(["sh", ROOT / "tests/servers.sh", verb, "redis", self.folder, *words], stdout=subprocess.PIPE,
                              text=True, check=True).stdout


def main():
    good = True
    with tempfile.TemporaryDirectory(prefix="mortise-bench-python.") as folder:
        server = Server(folder)
        try:
            every, last = os.sched_getaffinity(server.pid), max(os.sched_getaffinity(0))
            seconds, ratio = run("cycle", server.port)
            good &= verdict("cycle", f"{seconds * 1e6:.0f} us, {ratio:.2f} times as fast as redis-py (at least 1)", ratio >= 1)
            os.sched_setaffinity(server.pid, {last})
            seconds, ratio = run("cycle", server.port, "taskset", "-c", str(last))
            good &= verdict("cycle pinned", f"{seconds * 1e6:.0f} us, {ratio:.2f} times as fast as redis-py (at least 1)", ratio >= 1)
            os.sched_setaffinity(server.pid, every)
            seconds, ratio = run("tasks", server.port)
            good &= verdict("tasks", f"{seconds * 1e6:.0f} us each, {ratio:.2f} times as fast as redis-py (at least 3)", ratio >= 3)
            [commands] = run("waiting", server.port)
            good &= verdict("waiting", f"{WAITING} tasks: {commands:.0f} commands in two seconds (0)", commands == 0)
        finally:
            server.do("end")
    best = min(run("import", 0)[0] for _ in range(9))
    good &= verdict("import", f"{best * 1e3:.0f} ms, the best of nine (less than 60)", best < 0.06)
    return 0 if good else 1


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main())
    if sys.argv[1] == "import":
        measure_import()
    else:
        PARTS[sys.argv[1]](int(sys.argv[2]))
