"""visitors_test.py - how many visitors `mortise serve` lets in at a time, and for how long; docs/operating.md has the figures."""
import os
import select
import socket
import time

from rig import LIMIT_S, Serve, main, until

PLACES, OF_ADDRESS = 256, 64
ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
BEGIN = b"GET / HTTP/1.1\r\nX: "


def connect(serve, address, data=b""):
    """A visitor at this address of the host."""
    connection = socket.create_connection(("127.0.0.1", serve.port), LIMIT_S, source_address=(address, 0))
    connection.sendall(data)
    return connection


def answers(serve):
    """To a visitor at an address that nobody else here has."""
    connection, text = connect(serve, "127.0.0.9", ASK), b""
    while got := connection.recv(4096):
        text += got
    connection.close()
    return text.startswith(b"HTTP/1.1 200 ")


def started(folder):
    serve = Serve(folder, "sqlite:" + os.path.join(folder, "locks.db"))
    until("an answer", lambda: answers(serve))
    return serve


def is_open(connection):
    if not select.select([connection], [], [], 0)[0]:
        return True
    try:
        return connection.recv(1) != b""
    except ConnectionResetError:
        return False


def in_and_waiting(serve):
    """How many connections it has, and how many it has not accepted: those have no inode yet. The kernel lists them piece by
    piece, so the figures are right only when nothing changes."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file][1:]
    inodes = [row[9] for row in rows if row[1] == "0100007F:%04X" % serve.port and row[3] == "01"]
    return len(inodes) - inodes.count("0"), inodes.count("0")


def places_are_limited(folder):
    """Silent visitors are sent away after ten seconds: on a machine that takes as long, the test begins again."""
    for last in (False, False, True):
        began = time.monotonic()
        try:
            return limited(folder)
        except AssertionError:
            if last or time.monotonic() - began < 8:
                raise


def limited(folder):
    serve = started(folder)
    crowd = [connect(serve, "127.0.0.1") for _ in range(OF_ADDRESS + 16)]
    assert answers(serve)  # connections are accepted in their order, so it has decided about all of them
    crowd = [connection for connection in crowd if is_open(connection)]
    assert len(crowd) == OF_ADDRESS, len(crowd)
    crowd += [connect(serve, "127.0.0.%d" % i) for i in (2, 3) for _ in range(OF_ADDRESS)]
    for connection in crowd:
        connection.send(BEGIN)  # ten seconds from now on, which is enough for the rest on a busy machine
    crowd += [connect(serve, "127.0.0.4") for _ in range(OF_ADDRESS)]
    until("all places are taken", lambda: in_and_waiting(serve) == (PLACES, 0))
    late = [connect(serve, "127.0.0.5") for _ in range(2)]
    crowd.pop().close()
    until("one of them is let in", lambda: in_and_waiting(serve) == (PLACES, 1))
    for connection in crowd + late:
        connection.close()
    until("the places are free", lambda: answers(serve))
    assert serve.end() == 0


def visitors_stay_for_a_limited_time(folder):
    """One that says nothing more, and one that says a byte now and then."""
    serve = started(folder)
    silent, slow = (connect(serve, "127.0.0.1", BEGIN) for _ in range(2))
    began, stayed = time.monotonic(), {}
    while len(stayed) < 2:
        assert time.monotonic() - began < LIMIT_S, "it stays"
        for connection in select.select([c for c in (silent, slow) if c not in stayed], [], [], 1)[0]:
            stayed[connection] = time.monotonic() - began
        if slow not in stayed:
            try:
                slow.send(b"x")
            except (BrokenPipeError, ConnectionResetError):
                pass  # select() tells, too
    assert 9 < stayed[silent] and 29 < stayed[slow], list(stayed.values())
    assert list(stayed) == [silent, slow]
    silent.close(), slow.close()
    assert serve.end() == 0


main([places_are_limited, visitors_stay_for_a_limited_time])
