"""Locks without asyncio: acquire, release, errors, shared leases, threads, callbacks."""
import datetime
import gc
import logging
import math
import threading
import warnings

import pytest
from conftest import wait_until, waiters

import mortise
from mortise import _callbacks, _values
from mortise._native import lib


def test_block(client, other):
    with client.lock("a", timeout=5) as lease:
        assert lease.held and lease.state is mortise.State.HELD
        assert lease.token > 0 and 0 < lease.remaining <= 30 and lease.name == "a" and len(lease.owner) == 32
        lease.check()
        with pytest.raises(mortise.Busy, match="is held by") as info:
            other.acquire("a", timeout=0)
        assert info.value.status == "BUSY" and isinstance(info.value, mortise.NotAcquired)
        with pytest.raises(mortise.TimedOut, match="held by|timed out") as info:
            other.acquire("a", timeout=0.05)
        assert isinstance(info.value, TimeoutError)
    assert lease.state is mortise.State.LOST and lease.token == 0 and lease.remaining == 0
    with pytest.raises(mortise.Lost, match="was released"):
        lease.check()
    with pytest.raises(mortise.Invalid):
        lease.release()
    later = other.acquire("a", timeout=0)
    assert later.token > 0
    later.release_nowait()


def test_an_exception_in_the_block(client, other):
    with pytest.raises(KeyError):
        with client.lock("a"):
            raise KeyError
    other.acquire("a", timeout=0).release()


def test_try_lock(client, other):
    lease = client.try_lock("a")
    assert lease is not None
    with lease:
        assert other.try_lock("a") is None
    assert (again := other.try_lock("a")) is not None
    again.release()


def test_release_in_the_block(client):
    with client.lock("a") as lease:
        lease.release()


def test_waiting(client, other):
    got = []

    def wait():
        with other.lock("a", timeout=60) as lease:
            got.append(lease.token)

    with client.lock("a") as lease:
        first = lease.token
        thread = threading.Thread(target=wait)
        thread.start()
        waiters(client, "a")
        assert not got
    thread.join()
    assert got[0] > first


def test_the_main_thread_waits(client, other):
    held = other.acquire("a")
    timer = threading.Thread(target=lambda: (waiters(other, "a"), held.release()))
    timer.start()
    with client.lock("a", timeout=math.inf) as lease:
        assert lease.held
    timer.join()


def test_lost(client, other, caplog):
    told = []
    with pytest.raises(mortise.Lost, match="lost"):
        with client.lock("a", ttl=0.5, on_loss=told.append) as lease:
            other.break_("a", other.inspect("a").token)
            wait_until(lambda: not lease.held)
            with pytest.raises(mortise.Lost, match="is lost: another holder"):
                lease.check()
            wait_until(lambda: told)
    assert told == [lease]
    with pytest.raises(KeyError):  # which is more important
        with client.lock("a", ttl=0.5) as lease:
            other.break_("a", lease.token)
            wait_until(lambda: not lease.held)
            raise KeyError
    assert "release of 'a' after an exception" in caplog.text


def test_on_loss_fails(client, other, caplog):
    def fail(_lease):
        raise RuntimeError("not my day")

    lease = client.acquire("a", ttl=0.5, on_loss=fail)
    other.break_("a", lease.token)
    wait_until(lambda: "not my day" in caplog.text)
    with pytest.raises(mortise.Lost):
        lease.release()


def test_on_loss_exits(client, other, caplog):
    """sys.exit() in a thread ends nothing but that call: the others are called."""
    told = []

    def leave(lease):
        told.append(lease)
        raise SystemExit

    leases = [client.acquire(name, ttl=0.5, on_loss=leave) for name in "ab"]
    for lease in leases:
        other.break_(lease.name, lease.token)
        wait_until(lambda lease=lease: lease in told)
        with pytest.raises(mortise.Lost):
            lease.release()
    wait_until(lambda: caplog.text.count("on_loss of") == 2)


def test_lost_before_it_is_awaited(client, other):
    """The thread for on_loss collects the loss first. The main thread must hear of the acquire all the same."""
    told, request = [], _values.request(None, 0.5, False, 0, None, True, None)
    lease = client._new_lease(b"a", told.append)
    assert lib.mpy_acquire_start(client._handle, lease._slot, b"a", request.options, True, False) == 0
    wait_until(lambda: other.inspect("a").held)
    wait_until(lambda: client.stats().acquires)
    other.break_("a", other.inspect("a").token)
    wait_until(lambda: told)
    assert lib.mpy_await(client._handle, lease._slot, 100) == 0
    lease._drop()


def test_on_loss_after_an_interrupt(client, other, monkeypatch):
    """A signal comes before the thread for on_loss has started: the next acquire starts it."""
    told = []
    with monkeypatch.context() as changed, pytest.raises(KeyboardInterrupt):
        changed.setattr(_callbacks.Callbacks, "start", interrupted)
        client.acquire("a", on_loss=print)
    lease = client.acquire("a", ttl=0.5, on_loss=told.append)
    other.break_("a", lease.token)
    wait_until(lambda: told)
    with pytest.raises(mortise.Lost):
        lease.release()


def interrupted(*_):
    raise KeyboardInterrupt


def test_close_while_an_on_loss_runs(where, other):
    """It waits for that one. The others are not called afterwards."""
    told, go, client = [], threading.Event(), mortise.open(where)

    def slow(lease):
        told.append(lease)
        go.wait(60)

    leases = [client.acquire(name, ttl=0.5, on_loss=slow) for name in "abc"]
    for lease in leases:
        other.break_(lease.name, lease.token)
    wait_until(lambda: told and not any(lease.held for lease in leases))
    closing, callbacks = threading.Thread(target=client.close), client._callbacks
    closing.start()
    wait_until(callbacks._ended.is_set)
    go.set()
    closing.join()
    assert len(told) == 1 and not callbacks._thread.is_alive()


def test_asked_while_it_is_dropped(client):
    """As on_loss does, while the acquire of several names gives the lease up. It must not be freed meanwhile."""
    shared, stop, asked = [client.acquire("a")], threading.Event(), []

    def ask():
        while not stop.is_set():
            lease = shared[0]
            asked.append((lease.state, lease.token, lease.owner, lease.remaining))

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(100):
        lease, shared[0] = shared[0], client.acquire("b", shared=True)
        lease._drop()
        assert lease._slot and not lease.held
    stop.set()
    thread.join()
    shared[0].release()
    assert asked


def test_break(client, other):
    with pytest.raises(mortise.Lost):
        client.break_("a", 1)
    with client.lock("a") as lease:
        with pytest.raises(mortise.NotOwner):
            other.break_("a", lease.token + 1)


def test_shared(client, other):
    with client.lock("a", shared=True), other.lock("a", shared=True):
        assert client.inspect("a").shared and client.inspect("a").holders == 2
        assert len(client.holders("a")) == 2
        assert other.try_lock("a") is None


def test_permits(client, other):
    with client.lock("a", permits=2), client.lock("a", permits=2):
        assert other.try_lock("a", permits=2) is None
        with pytest.raises(mortise.Invalid, match="permits"):
            other.acquire("a", permits=3, timeout=0)


def test_downgrade(client, other):
    with client.lock("a") as lease:
        assert other.try_lock("a", shared=True) is None
        lease.downgrade()
        with other.lock("a", shared=True, timeout=0):
            assert lease.held


def test_extend(client):
    with client.lock("a", ttl=0.5, renew=False) as lease:
        lease.extend(30)
        assert lease.remaining > 20
        lease.extend()
    with client.lock("a") as lease:
        with pytest.raises(mortise.Invalid):
            lease.extend()


def test_max_hold(client):
    lease = client.acquire("a", ttl=0.2, max_hold=datetime.timedelta(seconds=0.2))
    wait_until(lambda: not lease.held)
    with pytest.raises(mortise.Lost):
        lease.release()


def test_owner(client):
    if "reentrant" not in client.capabilities:
        with pytest.raises(mortise.NotSupported):
            client.acquire("a", owner="me")
        return
    with client.lock("a", owner="me") as outer, client.lock("a", owner="me") as inner:
        assert outer.owner == inner.owner == "me" and outer.token == inner.token
    with client.lock("a", owner=mortise.THIS_THREAD), client.lock("a", owner=mortise.THIS_THREAD, timeout=0):
        pass


def test_names(client, other):
    for name in ("ä / €", b"\xff\x01", "x" * 400, "%", "{}"):
        with client.lock(name) as lease:
            assert other.try_lock(name) is None
            raw = name if isinstance(name, bytes) else name.encode()
            assert [info.raw_name for info in other.list()] == [raw]
            assert lease.name == raw.decode("utf-8", "backslashreplace")
    assert client.list() == []


def test_list(client):
    with client.lock("job:2"), client.lock("job:1"), client.lock("other"):
        assert [info.name for info in client.list("job:")] == ["job:1", "job:2"]
        assert len(client.list()) == 3
        info = client.inspect("job:1")
        assert info.held and info.pid > 0 and info.holders == 1 and info.remaining > 0 and info.held_for >= 0
    info = client.inspect("job:1")
    assert not info.held and info.name == "job:1" and info.token == 0


def test_the_rest(client):
    with client.lock("a"):
        assert client.stats().held == 1
    assert client.stats().acquires == 1
    assert "fencing" in client.capabilities and client.ping() and client.source.split(":")[0] in ("sqlite", "redis")
    assert mortise.__version__.count(".") == 2
    assert "mortise.Client" in repr(client) and "'a'" in repr(client.lock("a"))


def test_a_long_answer_to_a_ping(tmp_path):
    """More than a kilobyte: two paths as long as SQLite takes them. A line of the config has less room; a link does."""
    lines = ["[mortise]", "driver = migrate", "[migrate]", "from = sqlite:left", "to = sqlite:right", "phase = both"]
    paths = []
    for side in ("left", "right"):
        folder = tmp_path / f"{side}-folder"
        while len(str(folder)) < 300:
            folder /= "d" * 60
        folder /= "d" * (499 - len(str(folder) + "/" + "/l"))
        folder.mkdir(parents=True)
        (tmp_path / side).symlink_to(folder)
        paths.append(str(folder / "l"))
        lines += [f"[sqlite:{side}]", f"path = {tmp_path}/{side}/l"]
    config = tmp_path / "mortise.conf"
    config.write_text("\n".join(lines) + "\n")
    with mortise.open(config) as client:
        answer = client.ping()
    assert len(answer) > 1023 and paths[0] in answer and f"{paths[1]}, layout" in answer


# ---- threads ----


def test_one_lock_for_all_threads(client):
    lock, inside, most = client.lock("a", timeout=60), [], []

    def work():
        for _ in range(20):
            with lock:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80 and max(most) == 1
    assert lock._held == []


def test_a_wait_releases_the_gil(client, other):
    """While a thread waits, this one goes on, and ends the wait."""
    with other.lock("a"):
        thread = threading.Thread(target=lambda: client.acquire("a", timeout=60).release())
        thread.start()
        waiters(other, "a")
    thread.join()


def test_exclusion_with_processes_in_c(client, taker, tmp_path):
    number, rounds = tmp_path / "number", 100
    number.write_text("0")
    taker.say(f"spin a {number} {rounds}")
    for _ in range(rounds):
        with client.lock("a", timeout=60):
            number.write_text(str(int(number.read_text().strip("\0") or 0) + 1))
    assert taker.hear().startswith("OK")
    assert int(number.read_text().strip("\0")) == 2 * rounds


# ---- the end of a client ----


def test_close(where):
    client = mortise.open(where)
    lease = client.acquire("a")
    waiting = mortise.open(where)
    outcome = []

    def wait():
        try:
            waiting.acquire("a")
        except mortise.Error as failure:
            outcome.append(failure)

    thread = threading.Thread(target=wait)
    thread.start()
    waiters(client, "a")
    waiting.close()
    thread.join()
    assert isinstance(outcome[0], mortise.Closed)
    client.close()
    client.close()
    assert client.closed and "closed" in repr(client)
    assert not lease.held
    with pytest.raises((mortise.Closed, mortise.Invalid)):
        lease.release()
    for call in (lambda: client.acquire("a"), lambda: client.inspect("a"), client.list, client.ping, client.stats,
                 lambda: client.break_("a", 1), lambda: client.acquire("a", on_loss=print),
                 lambda: client.lock_many(["a"]).acquire()):
        with pytest.raises(mortise.Closed):
            call()
    assert client.capabilities == frozenset() and client.source == ""


def test_garbage(client, other):
    with pytest.warns(ResourceWarning, match="'a' HELD> was not released"):
        client.acquire("a")
        gc.collect()
    with other.lock("a", timeout=5):
        pass
    with pytest.warns(ResourceWarning, match="was not released"):
        client.acquire("a", on_loss=print)
        gc.collect()
    other.acquire("a", timeout=5).release()


def test_garbage_client(sqlite_where):
    with pytest.warns(ResourceWarning, match="was not closed"):
        mortise.open(sqlite_where)
        gc.collect()


def test_closed_while_held(sqlite_where):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client = mortise.open(sqlite_where)
        lease = client.acquire("a", on_loss=print)
        client.close()
        del lease
        gc.collect()


# ---- errors ----


def test_unreachable():
    with mortise.open("redis://127.0.0.1:1?unreachable_timeout=100ms&log=none") as client:
        with pytest.raises(mortise.Unreachable, match="127.0.0.1:1") as info:
            client.acquire("a")
        assert isinstance(info.value, ConnectionError) and info.value.driver == "redis" and info.value.native == 111


def test_config(tmp_path):
    file = tmp_path / "mortise.conf"
    file.write_text("[mortise]\ndriver = sqlite\n[sqlite]\npth = x\n")
    for path in (file, str(file), bytes(file)):
        with pytest.raises(mortise.ConfigError, match=r'mortise.conf:4: .*did you mean "path"'):
            mortise.open(path)


def test_log(tmp_path, caplog):
    """The plugin says what it does."""
    caplog.set_level(logging.INFO, "mortise")
    file = tmp_path / "mortise.conf"
    file.write_text(f"[mortise]\ndriver = chaos\n[chaos]\nbelow = sqlite\nrefuse = 1000\ntell = yes\n"
                    f"[sqlite]\npath = {tmp_path}/locks.db\n")
    with mortise.open(file) as client:
        with pytest.raises(mortise.Error):
            client.acquire("a", timeout=0)
        wait_until(lambda: "acquire" in caplog.text, "a line of the log")
    assert {(record.name, record.levelname) for record in caplog.records} == {("mortise", "INFO")}


# ---- the bridge ----


def test_dropped_when_it_was_decided(client, other):
    """The lock is granted, nobody has dispatched that, and nobody will: whoever drops the slot must release it."""
    from mortise._native import ffi, lib

    client._listen()  # callbacks come by dispatching only
    room = ffi.new("mpy_slot **")
    assert lib.mpy_slot_new(ffi.NULL, 0, room)
    slot = room[0]
    assert lib.mpy_acquire_start(client._handle, slot, b"a", ffi.NULL, False, False) == 0
    wait_until(lambda: client.stats().acquires == 1)
    lib.mpy_slot_leave(slot)
    assert lib.mpy_state(slot) == 0
    lib.mpy_slot_free(room)
    assert client.stats().held == 0
    other.acquire("a", timeout=20).release()
