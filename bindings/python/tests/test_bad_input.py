"""Bad input: always an exception that says what is wrong, never a crash. MORTISE_FUZZ_S: how long the fuzz lasts."""
import asyncio
import datetime
import decimal
import gc
import math
import os
import random
import time
import warnings

import pytest

import mortise

NAMES = [None, 1, 1.5, [], object(), bytearray(b"a"), memoryview(b"a"), "", b"", "a\0b", b"a\0", "\ud800", "a\udcff", "x" * 513,
         "ä" * 257, True, datetime.date(2026, 1, 1)]
DURATIONS = ["5", b"5", [], object(), True, math.nan, -1, -0.001, -math.inf, datetime.timedelta(seconds=-1), -(10**400), 1j,
             decimal.Decimal(5)]


def refused(call, *arguments, **keywords):
    with pytest.raises((TypeError, ValueError, mortise.Error)) as info:
        call(*arguments, **keywords)
    assert str(info.value), "it says nothing"
    return info.value


@pytest.mark.parametrize("name", NAMES, ids=lambda value: ascii(value)[:20])
def test_names(client, name):
    for call in (client.acquire, client.try_lock, client.inspect, client.holders, lambda name: client.break_(name, 1),
                 lambda name: client.lock(name).acquire(), lambda name: client.lock_many([name]).acquire(),
                 lambda name: client.lock_many(["ok", name]).acquire(),
                 lambda name: asyncio.run(client.alock(name).acquire()),
                 lambda name: asyncio.run(client.alock_many(["ok", name]).acquire()),
                 lambda name: client.locked(lambda: name)(print)()):
        failure = refused(call, name)
        assert isinstance(failure, (TypeError, mortise.Invalid))
        if isinstance(name, (str, bytes)) and name:
            assert any(word in str(failure) for word in ("surrogate", "zero byte", "512", "bytes")), failure
    if name not in ("", b""):
        refused(client.list, name)
    assert client.list() == []


@pytest.mark.parametrize("value", DURATIONS, ids=lambda value: ascii(value)[:20])
def test_durations(client, value):
    for key in ("timeout", "ttl", "max_hold"):
        failure = refused(client.lock, "a", **{key: value})
        assert key in str(failure) and isinstance(failure, (TypeError, mortise.Invalid))
        refused(client.alock, "a", **{key: value})
    with client.lock("a", renew=False) as lease:
        refused(lease.extend, value)


def test_numbers(client):
    for ttl in (0, 1e-9, 0.049, 86401, 1e30, math.inf, 10**400, datetime.timedelta.max):
        assert "ttl" in str(refused(client.acquire, "a", ttl=ttl))
    for timeout in (1e30, math.inf, 10**400, datetime.timedelta.max, 10**9):
        client.acquire("a", timeout=timeout).release()
    for permits in (-1, 2**32, 10**30, 1.5, "2", True, None):
        assert "permits" in str(refused(client.acquire, "a", permits=permits))
    for token in (-1, 2**64, 10**30, 1.5, "2", True, None):
        assert "token" in str(refused(client.break_, "a", token))
    refused(client.acquire, "a", max_hold=0)
    client.acquire("a", max_hold=10**400).release()


def test_the_other_arguments(client):
    for key, values in {"shared": (1, "yes", None), "renew": (0, "no", None), "owner": (1, [], "\0", "\ud800", "", "x" * 513,
                        "\001thread"), "on_loss": (1, "f")}.items():
        for value in values:
            refused(client.acquire, "a", **{key: value})
    refused(client.acquire, "a", shared=True, owner="me")
    refused(client.acquire, "a", 5)
    refused(client.acquire, "a", tmeout=5)
    for names in ("a", b"a", 5, None, [], ["a", "a"], ["a"] * 300, [f"{i}" for i in range(257)]):
        refused(client.lock_many(names).acquire) if isinstance(names, set) else refused(client.lock_many, names)
    for name in (None, 5, b"a"):
        refused(client.locked(name), print) if callable(name) else refused(lambda name=name: client.locked(name)(print))
    refused(client.locked, "a", timeout="x")
    refused(lambda: client.locked("a", lease=5)(print))


@pytest.mark.parametrize("where", [1, [], object(), "a\0b", b"\0", "\ud800", "nothing:", "redis://\udcff:x", "", "/nowhere/x",
                                   "x" * 100_000], ids=lambda value: ascii(value)[:20])
def test_where(where):
    refused(lambda: mortise.open(where).close())


def test_half_made_objects():
    for kind in (mortise.Client, mortise.Lease, mortise.AsyncLease):
        thing = kind.__new__(kind)
        with pytest.raises(AttributeError):
            thing.state if kind is not mortise.Client else thing.acquire("a")
        del thing


# ---- any arguments, in any order ----


class Fuzz:
    """Calls whatever there is with whatever comes; only these exceptions may come out."""

    EXPECTED = (TypeError, ValueError, AttributeError, KeyError, IndexError, RuntimeError, mortise.Error)

    def __init__(self, where, seed):
        self.random = random.Random(seed)
        self.where = where
        self.client = mortise.open(where)
        self.leases = []
        self.calls = {}

    def value(self):
        pick = self.random
        return pick.choice([
            lambda: pick.choice(NAMES), lambda: pick.choice(DURATIONS), lambda: pick.choice(["a", "b", "c", b"\xff"]),
            lambda: pick.choice([0, 0.001, 0.06, 1, 2**31, 2**63, 2**64, -2**63, 10**40, math.inf]),
            lambda: pick.choice([True, False, None]), lambda: pick.choice(self.leases) if self.leases else None,
            lambda: self.client, lambda: ["a", "b"], lambda: print, lambda: bytes(pick.randrange(256) for _ in range(8)),
            lambda: "".join(chr(pick.choice([0, 65, 0xD800, 0xDFFF, 0x10FFFF, 0xE4])) for _ in range(4))])()

    def keywords(self):
        keys = self.random.sample(["ttl", "shared", "permits", "owner", "renew", "max_hold", "on_loss"],
                                  self.random.choice([0, 0, 0, 0, 0, 1, 2, 7]))
        found = {key: self.value() for key in keys}
        return found | {"timeout": self.random.choice([0, 0.001, self.random.choice([0, 0, *DURATIONS])])}  # none waits for ever

    def name(self):
        return f"{self.random.randrange(30)}" if self.random.random() < 0.8 else self.value()

    def keep(self, lease):
        self.leases += lease if isinstance(lease, mortise.Leases) else [lease] if lease is not None else []

    async def use_async(self, name, keywords):
        kind = self.random.randrange(4)
        if kind == 0:
            async with self.client.alock(name, **keywords):
                pass
        elif kind == 1:
            await asyncio.wait_for(self.client.alock(name, **keywords).acquire(), self.random.random() / 200)
        elif kind == 2:
            async with self.client.alock_many([name, self.name()], **keywords):
                pass
        else:
            self.keep(await self.client.alock(name, **keywords))

    def step(self):
        client, pick = self.client, self.random
        lease = pick.choice(self.leases) if self.leases else None
        actions = {
            "acquire": lambda: self.keep(client.acquire(self.name(), **self.keywords())),
            "many": lambda: self.keep(client.lock_many([self.name(), self.name()], **self.keywords()).acquire()),
            "block": lambda: client.lock(self.name(), **self.keywords()).__enter__(),
            "leave": lambda: client.lock(self.name(), **self.keywords()).__exit__(None, None, None),
            "inspect": lambda: client.inspect(self.value()), "list": lambda: client.list(self.value()),
            "holders": lambda: client.holders(self.value()), "break": lambda: client.break_(self.name(), self.value()),
            "release": lambda: lease.release(), "nowait": lambda: lease.release_nowait(),
            "extend": lambda: lease.extend(self.value()), "downgrade": lambda: lease.downgrade(),
            "read": lambda: (lease.state, lease.token, lease.remaining, lease.owner, lease.name, repr(lease), lease.held),
            "check": lambda: lease.check(), "exit": lambda: lease.__exit__(None, None, None),
            "drop": lambda: self.leases.pop(0) if len(self.leases) > 2 else None,
            "set": lambda: setattr(lease, pick.choice(["_phase", "_on_loss"]), self.value()),
            "async": lambda: asyncio.run(self.use_async(self.name(), self.keywords())),
            "locked": lambda: client.locked(self.value(), **self.keywords())(self.value())(self.value()),
            "close": lambda: self.reopen() if pick.random() < 0.02 else None,
            "open": lambda: mortise.open(self.value()).close() if pick.random() < 0.05 else None,
        }
        name = pick.choice(list(actions))
        try:
            actions[name]()
            outcome = "ok"
        except asyncio.TimeoutError:
            outcome = "timeout"
        except self.EXPECTED as failure:
            outcome = type(failure).__name__
        self.calls[name, outcome] = self.calls.get((name, outcome), 0) + 1
        if len(self.leases) > 20:
            del self.leases[0]

    def reopen(self):
        self.client.close()
        if self.random.random() < 0.5:
            for _ in range(10):
                self.leases = self.leases[:5]
                self.step()
        self.client = mortise.open(self.where)


def test_fuzz(sqlite_where):
    seed = int(os.environ.get("MORTISE_FUZZ_SEED", random.SystemRandom().randrange(10**6)))
    until = time.monotonic() + float(os.environ.get("MORTISE_FUZZ_S", 1))
    print(f"\nMORTISE_FUZZ_SEED={seed}")  # for tests/again.py
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fuzz = Fuzz(sqlite_where + "?ttl=1s", seed)
        while time.monotonic() < until:
            fuzz.step()
        fuzz.leases.clear()
        fuzz.client.close()
        gc.collect()
    done = {name: times for (name, outcome), times in sorted(fuzz.calls.items()) if outcome == "ok"}
    print(f"{sum(fuzz.calls.values())} calls; without an exception: {done}")
    assert {"acquire", "release", "many", "async", "check", "extend"} & set(done)
