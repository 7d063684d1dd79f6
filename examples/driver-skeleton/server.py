#!/usr/bin/env python3
"""A lock server for the skeleton, in place of yours.

    server.py FILE [PID]   listens on 127.0.0.1, writes "PORT=n" to FILE; ends when process PID has ended
    server.py list PORT    prints what is held, one line each

Both sides send lines. N is a number that the client has chosen; 0 means no answer. Names, notes and grants are
hexadecimal, "-" if empty. Times are milliseconds.

    HELLO CLIENT COUNT                        ends older connections of that client (smaller COUNT) unread
    N VERB NAME GRANT TTL TOKEN NOTE          ACQUIRE RENEW RELEASE BREAK INSPECT LIST PING
    0 WATCH NAME / 0 UNWATCH NAME             0 NEWS NAME follows at once, and whenever NAME becomes free

    N OK [TOKEN | HOLDER | text]   N BUSY REMAINING HOLDER   N LOST   N NOTOWNER   N ITEM NAME HOLDER
    HOLDER is GRANT TOKEN HELD REMAINING NOTE, or nothing

The server executes each line completely before it reads the next one from any connection, so check and action are one
step (R3). An expired claim does not exist, whether or not anybody has looked.
"""
import os
import selectors
import socket
import sys
import time

claims = {}  # name -> Claim
links = set()
latest = {}  # client -> the count of its latest connection. A server for production would forget old ones
poll = selectors.DefaultSelector()
last_token = time.time_ns() // 1000  # grows over a restart too, if the clock does


def now_ms():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6


class Claim:
    def __init__(self, grant, ttl, token, note):
        self.grant, self.token, self.note = grant, token, note
        self.since = now_ms()
        self.until = self.since + ttl

    def holder(self):
        remaining = max(int(self.until - now_ms()), 0)
        return f"{self.grant} {self.token} {int(now_ms() - self.since)} {remaining} {self.note}"


def standing(name):
    claim = claims.get(name)
    if claim and claim.until <= now_ms():
        del claims[name]
        return None
    return claim


def freed(name):
    del claims[name]
    for link in list(links):
        if name in link.watched:
            link.say(f"0 NEWS {name}")


def acquire(name, grant, ttl, floor, note):
    global last_token
    claim = standing(name)
    if claim is None:
        last_token = max(last_token + 1, floor)
        claims[name] = claim = Claim(grant, ttl, last_token, note)
    elif claim.grant != grant:
        return f"BUSY {int(claim.until - now_ms()) + 1} {claim.holder()}"
    # the same grant again: the reply was lost. Same token; never shorten the claim
    claim.until = max(claim.until, now_ms() + ttl)
    return f"OK {claim.token}"


def renew(name, grant, ttl, *_):
    claim = standing(name)
    if claim is None:
        return "LOST"
    if claim.grant != grant:
        return "NOTOWNER"
    claim.until = max(claim.until, now_ms() + ttl)
    return "OK"


def release(name, grant, *_):
    claim = standing(name)
    if claim is None:
        return "LOST"
    if claim.grant != grant:
        return "NOTOWNER"
    freed(name)
    return "OK"


def break_grant(name, _grant, _ttl, token, *_):
    claim = standing(name)
    if claim is None:
        return "LOST"
    if claim.token != token:
        return "NOTOWNER"
    freed(name)
    return "OK"


def inspect(name, *_):
    claim = standing(name)
    return f"OK {claim.holder()}" if claim else "OK"


def ping(*_):
    return "OK the skeleton's server, process " + str(os.getpid())


def held(prefix):
    prefix = "" if prefix == "-" else prefix
    return [(name, claims[name]) for name in sorted(claims) if name.startswith(prefix) and standing(name)]


verbs = {"ACQUIRE": acquire, "RENEW": renew, "RELEASE": release, "BREAK": break_grant, "INSPECT": inspect,
         "PING": ping}


class Link:
    def __init__(self, sock):
        self.sock, self.client, self.watched = sock, None, set()
        self.unread, self.unsent = b"", b""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        links.add(self)
        poll.register(sock, selectors.EVENT_READ, self)

    def end(self):
        if self in links:
            links.remove(self)
            poll.unregister(self.sock)
            self.sock.close()

    def say(self, line):
        self.unsent += line.encode() + b"\n"
        if self in links:
            self.flush()

    def flush(self):
        try:
            self.unsent = self.unsent[self.sock.send(self.unsent):]
        except BlockingIOError:
            pass
        except OSError:
            return self.end()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.unsent else 0)
        poll.modify(self.sock, events, self)

    def ready(self, events):
        if events & selectors.EVENT_WRITE:
            self.flush()
        if self in links and events & selectors.EVENT_READ:
            self.receive()

    def receive(self):
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            return self.end()
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            if self in links:
                self.line(line.decode().split(" "))

    def hello(self, client, count):
        if count < latest.get(client, 0):  # it was unread while the client made a later one
            return self.end()
        latest[client] = count
        for other in list(links):
            if other is not self and other.client == client:
                other.end()
        self.client = client

    def line(self, words):
        if words[0] == "HELLO":
            self.hello(words[1], int(words[2]))
        elif words[1] == "WATCH":
            self.watched.add(words[2])
            self.say(f"0 NEWS {words[2]}")
        elif words[1] == "UNWATCH":
            self.watched.discard(words[2])
        elif words[1] == "LIST":
            for name, claim in held(words[2]):
                self.say(f"{words[0]} ITEM {name} {claim.holder()}")
            self.say(f"{words[0]} OK")
        else:
            number, verb, name, grant, ttl, token, note = words
            self.say(f"{number} {verbs[verb](name, grant, int(ttl), int(token), note)}")


def serve(path, guard):
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listener.setblocking(False)
    poll.register(listener, selectors.EVENT_READ)
    if guard:
        poll.register(os.pidfd_open(guard), selectors.EVENT_READ, "guard")
    with open(path + ".new", "w") as file:
        file.write(f"PORT={listener.getsockname()[1]}\nPID={os.getpid()}\n")
    os.rename(path + ".new", path)
    while True:
        for key, events in poll.select():
            if key.data == "guard":
                return
            if key.fileobj is listener:
                Link(listener.accept()[0])
            elif key.data in links:
                key.data.ready(events)


def show(port):
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"1 LIST - - 0 0 -\n")
        for line in sock.makefile():
            words = line.split()
            if words[1] != "ITEM":
                return
            print(bytes.fromhex(words[2]).decode(errors="replace"), *words[3:])


if __name__ == "__main__":
    if sys.argv[1] == "list":
        show(int(sys.argv[2]))
    else:
        serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
