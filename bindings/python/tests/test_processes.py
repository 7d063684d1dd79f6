"""Processes: Ctrl-C, the end of the interpreter, fork, multiprocessing, pre-fork servers."""
import multiprocessing
import os
import pickle
import signal
import threading
import warnings

import pytest
from children import add_ones, keep, keep_in_a_pool, work_in_a_child, work_in_a_thread
from conftest import PATIENCE_S, wait_until, waiters

import mortise

WAITER = """
    import mortise, sys
    client = mortise.open(sys.argv[1])
    print("ready", flush=True)
    try:
        {call}
    except KeyboardInterrupt:
        print("interrupted", client.stats().waiting, flush=True)
    sys.stdin.readline()
    """


@pytest.mark.parametrize("call", [
    "client.acquire('a')",
    "client.lock_many(['0', 'a']).acquire()",
    "__import__('asyncio').run(client.alock('a').acquire())",
])
def test_interrupt(client, script, where, call):
    """Ctrl-C ends the wait, and nothing is left: not in the process, nor in the backend."""
    with client.lock("a"):
        process = script(WAITER.format(call=call), where)
        assert process.hear() == "ready"
        waiters(client, "a")
        process.interrupt()
        assert process.hear() == "interrupted 0"
        wait_until(lambda: (client.inspect("a").waiters or 0) <= 0)
        assert [info.name for info in client.list()] == ["a"]
    process.child.stdin.write("\n")
    assert process.end() == (0, "", "")


def test_interrupt_in_another_thread(client, script, where):
    """The kernel may give the signal to any thread; the main thread must hear of it."""
    with client.lock("a"):
        process = script("""
            import mortise, signal, sys, threading
            client = mortise.open(sys.argv[1])
            def interrupt():
                sys.stdin.readline()
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            print("ready", flush=True)
            try:
                client.acquire("a")
            except KeyboardInterrupt:
                print("interrupted")
            """, where)
        assert process.hear() == "ready"
        waiters(client, "a")
        process.child.stdin.write("\n")
        process.child.stdin.flush()
        assert process.end() == (0, "interrupted\n", "")


def test_a_handler_uses_the_client(client, script, where):
    """A signal handler runs during a wait, acquires, and the wait goes on."""
    with client.lock("a"):
        process = script("""
            import mortise, signal, sys
            client = mortise.open(sys.argv[1])
            def handler(*_):
                with client.lock("b") as lease:
                    print("handled", lease.held, flush=True)
            signal.signal(signal.SIGUSR1, handler)
            print("ready", flush=True)
            with client.lock("a") as lease:
                print("got it", lease.held)
            """, where)
        assert process.hear() == "ready"
        waiters(client, "a")
        process.child.send_signal(signal.SIGUSR1)
        assert process.hear() == "handled True"
    assert process.end() == (0, "got it True\n", "")


@pytest.mark.parametrize("how", [
    "lease = client.acquire('a')",
    "lease = client.acquire('a', on_loss=print)",
    "lease = client.acquire('a'); sys.exit()",
    "lease = client.acquire('a'); 1 / 0",
    "threading.Thread(target=lambda: client.acquire('b'), daemon=True).start(); lease = client.acquire('a')",
    "lease = __import__('asyncio').run(client.alock('a').acquire())",
])
def test_exit_while_holding(client, script, where, how):
    """The end of the interpreter releases what is held, at once and not after a ttl. A daemon thread waits meanwhile."""
    with client.lock("b"):
        process = script(f"""
            import mortise, sys, threading
            client = mortise.open(sys.argv[1])
            {how}
            """, where)
        code, out, err = process.end()
        assert out == "" and code == (1 if "1 / 0" in how else 0) and ("ZeroDivisionError" in err) == ("1 / 0" in how)
        if code == 0:
            assert err == ""
        client.acquire("a", timeout=0).release()


def test_log_after_the_end(script, tmp_path):
    """What runs after the end of the package may use it, but its log lines no longer call Python."""
    file = tmp_path / "mortise.conf"
    file.write_text(f"[mortise]\ndriver = chaos\n[chaos]\nbelow = sqlite\nrefuse = 1000\ntell = yes\n"
                    f"[sqlite]\npath = {tmp_path}/locks.db\n")
    process = script("""
        import atexit, logging, sys
        @atexit.register
        def late():
            with mortise.open(sys.argv[1]) as client:
                try:
                    client.acquire("late", timeout=0)
                except mortise.Error:
                    pass
        import mortise
        logging.basicConfig(stream=sys.stdout, level=logging.INFO)
        with mortise.open(sys.argv[1]) as client:
            pass
        """, file)
    code, out, err = process.end()
    assert code == 0 and "late" in err and "late" not in out


def test_killed(client, script, where):
    process = script("""
        import mortise, sys, time
        client = mortise.open(sys.argv[1])
        lease = client.acquire("a", ttl=0.5)
        print("ready", flush=True)
        time.sleep(60)
        """, where)
    assert process.hear() == "ready"
    process.child.kill()
    with client.lock("a", timeout=PATIENCE_S):
        pass


# ---- fork ----


def in_child(function):
    """Runs a function in a forked child. Returns what it returned, or raises what it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork with threads, in later versions of Python
        get, put = os.pipe()
        pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(PATIENCE_S)
            answer = function()
        except BaseException as failure:
            answer = failure
        os.write(put, pickle.dumps(answer))
        os._exit(0)
    os.close(put)
    with os.fdopen(get, "rb") as file:
        data = file.read()
    assert os.waitpid(pid, 0)[1] == 0 and data
    answer = pickle.loads(data)
    if isinstance(answer, BaseException):
        raise answer
    return answer


def test_fork(client, other, where):
    client.acquire("warm", on_loss=print).release()  # there is a thread for callbacks, which the child does not have
    with client.lock("a", on_loss=print) as lease:

        def child():
            for call in (lambda: client.acquire("b"), lambda: client.acquire("b", on_loss=print), client.close,
                         lambda: client.inspect("a"), client.list, client.ping, lease.release, lease.release_nowait,
                         lease.check, lambda: client.lock_many(["b"]).acquire(), client.stats, lease.downgrade):
                with pytest.raises(mortise.Forked):
                    call()
            assert lease.state is mortise.State.LOST and lease.token == 0 and "parent" in repr(client)
            with mortise.open(where) as own:
                with pytest.raises(mortise.Busy):
                    own.acquire("a", timeout=0)
                with own.lock("b", on_loss=print) as mine:
                    return mine.held

        assert in_child(child) is True
        lease.check()
        assert other.try_lock("a") is None
    other.acquire("a", timeout=0).release()


def test_fork_in_a_loop(client, where):
    import asyncio

    async def main():
        async with client.alock("a"):

            def child():
                with pytest.raises(mortise.Forked):
                    asyncio.run(client.alock("b").acquire())
                return True

            assert in_child(child)
        async with client.alock("b"):
            pass

    asyncio.run(main())


def test_fork_while_a_thread_waits(client, other, where):
    with other.lock("a"):
        thread = threading.Thread(target=lambda: client.acquire("a").release())
        thread.start()
        waiters(other, "a")

        def child():
            with mortise.open(where) as own:
                return own.try_lock("a") is None

        assert in_child(child)
    thread.join()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(where, tmp_path, method):
    path, context = tmp_path / "number", multiprocessing.get_context(method)
    path.write_text("0")
    children = [context.Process(target=add_ones, args=(where, str(path), 25)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE_S)
        assert child.exitcode == 0
    assert path.read_text() == "75"


@pytest.mark.parametrize("work", [keep, keep_in_a_pool])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_exit_while_holding(client, where, method, work):
    child = multiprocessing.get_context(method).Process(target=work, args=(where,))
    child.start()
    child.join(PATIENCE_S)
    assert child.exitcode == 0
    client.acquire("a", timeout=0).release()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("target", [work_in_a_thread, work_in_a_child])
def test_multiprocessing_work_after_the_target(client, where, method, target):
    """What is held is released when nothing can work under it any more, and then at once."""
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=target, args=(where, method, there))
    child.start()
    there.close()
    assert here.poll(PATIENCE_S) and here.recv() == "waiting"
    taken = client.try_lock("a")
    here.send("end")
    assert here.poll(PATIENCE_S) and here.recv() == "done"
    child.join(PATIENCE_S)
    assert child.exitcode == 0 and taken is None
    client.acquire("a", timeout=0).release()


@pytest.mark.parametrize("imports", ["mortise, multiprocessing.util", "multiprocessing.util, mortise"])
def test_exit_while_a_child_works(client, script, where, imports):
    """The program releases what it holds when its children have ended."""
    process = script(f"""
        import os, sys, {imports}
        stdin = os.dup(0)  # multiprocessing closes that of the child
        child = multiprocessing.get_context("fork").Process(target=os.read, args=(stdin, 1))
        child.start()
        client = mortise.open(sys.argv[1])
        lease = client.acquire("a")
        multiprocessing.util.Finalize(None, print, ("waiting",), {{"flush": True}}, exitpriority=0)
        """, where)
    assert process.hear() == "waiting"
    taken = client.try_lock("a")
    process.child.stdin.write("\n")
    assert process.end() == (0, "", "") and taken is None
    client.acquire("a", timeout=0).release()


def test_a_client_cannot_be_sent(client):
    with client.lock("a") as lease:
        for what in (client, lease):
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickle.dumps(what)


def test_errors_can_be_sent(client, other):
    with client.lock("a"):
        with pytest.raises(mortise.Busy) as info:
            other.acquire("a", timeout=0)
    copy = pickle.loads(pickle.dumps(info.value))
    assert type(copy) is mortise.Busy and str(copy) == str(info.value)


def test_pre_fork_server(client, script, where):
    """As gunicorn does it: the parent has opened a client and forks; each worker opens its own, and the parent holds on."""
    process = script("""
        import mortise, os, sys
        parent = mortise.open(sys.argv[1])
        with parent.lock("parent"):
            for number in range(4):
                if os.fork() == 0:
                    client = mortise.open(sys.argv[1])
                    with client.lock("worker", timeout=60) as lease:
                        assert client.try_lock("parent") is None and lease.held
                    os._exit(0)
            codes = [os.wait()[1] for _ in range(4)]
            print(codes, parent.inspect("parent").held)
        """, where)
    assert process.end() == (0, "[0, 0, 0, 0] True\n", "")
    assert client.list() == []


def test_a_child_that_leaves_the_block(client, script, where):
    """It must not release its parent's lock."""
    process = script("""
        import mortise, os, sys
        client = mortise.open(sys.argv[1])
        try:
            with client.lock("a") as lease:
                pid = os.fork()
                if pid:
                    os.waitpid(pid, 0)
                    lease.check()
                    print("held")
        except mortise.Forked:
            os._exit(0)
        """, where)
    assert process.end() == (0, "held\n", "")
