"""What the children of test_processes.py do. A module without pytest: whoever is spawned imports it, and pytest takes as long as all
the rest of such a child."""
import concurrent.futures
import multiprocessing
import multiprocessing.util
import threading

import mortise

PATIENCE_S = 60  # bounds failure only


def add_ones(where, path, count, lock=None):
    """The work of a child: it adds ones to a number in a file."""
    with mortise.open(where) as client:
        for _ in range(count):
            with client.lock("number", timeout=PATIENCE_S):
                with open(path, encoding="ascii") as file:
                    number = int(file.read())
                with open(path, "w", encoding="ascii") as file:
                    file.write(str(number + 1))


kept = []


def keep(where):
    """The work of a child that ends while it holds."""
    client = mortise.open(where)
    kept.append((client, client.acquire("a")))


def keep_in_a_pool(where):
    """The work of a child that ends while it holds, and while a thread of a pool is idle."""
    client, pool = mortise.open(where), concurrent.futures.ThreadPoolExecutor()
    kept.append((client, pool, pool.submit(client.acquire, "a").result()))


def work_in_a_thread(where, _, parent):
    """The work of a child that returns while its thread works under a lock."""
    client, held = mortise.open(where), threading.Event()

    def work():
        with client.lock("a") as lease:
            held.set()
            threading.main_thread().join()  # it returns when the interpreter waits for the threads
            parent.send("waiting")
            parent.recv()
            lease.check()
            parent.send("done")

    threading.Thread(target=work).start()
    held.wait()


def work_in_a_child(where, method, parent):
    """The same with a child of the child. The first finalizer of a priority is the last one to run."""
    multiprocessing.util.Finalize(None, parent.send, ("waiting",), exitpriority=0)
    multiprocessing.get_context(method).Process(target=end_when_told, args=(parent,)).start()
    keep(where)


def end_when_told(parent):
    parent.recv()
    parent.send("done")
