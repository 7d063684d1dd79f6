"""http_test.py - `mortise serve` by HTTP: what it shows, whom it lets read, and what visitors cannot do to it."""
import base64
import http.client
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

from rig import COMMAND, Holder, Proxy, Redis, Serve, end_started, free_port, listed, main, spawned, steady, until

CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
       "form-action 'none'; frame-ancestors 'none'")
TOKEN = "a-token-of-24-characters"


def sqlite(folder):
    return "sqlite:" + os.path.join(folder, "locks.db")


def refused(where, *words):
    """The exit code and the message of a serve that does not start."""
    done = subprocess.run([COMMAND, "-C", where, "serve", *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def shows_what_list_shows(folder):
    where, holder = sqlite(folder), Holder(sqlite(folder))
    names = ["jobs/nightly", "<script>alert(1)</script>", b"\xff\x01\n", "shared", 'q"\\', "\u202eevil"]
    for name in names:
        holder.acquire(name, more="shared permits=5" if name == "shared" else "")
    waiter = Holder(where)
    waiter.say("acquire jobs/nightly -1 30000")
    until("a waiter", lambda: any(lock["waiters"] for lock in listed(where)))
    serve = Serve(folder, where)
    until("an answer", lambda: serve.json()["state"] == "up")
    shown = serve.json()
    assert steady(shown["locks"]) == steady(listed(where)), shown["locks"]
    assert (shown["held"], shown["waiting"], shown["expired"]) == (6, 1, 0)
    assert all(0 <= lock["held_ms"] < 60000 and 0 <= lock["remaining_ms"] <= 30000 for lock in shown["locks"])
    assert len(shown["history"]["held"]) == 120 and shown["history"]["held"][-1] == 6
    # by prefix: "<script>alert(1)</" ends with its slash
    assert 'prefix="jobs/"} 1\n' in serve.ask("/metrics")[2].decode()
    only = Serve(folder, where, "jobs/")
    until("an answer", lambda: only.json()["state"] == "up")
    assert [lock["name"] for lock in only.json()["locks"]] == ["jobs/nightly"]
    assert only.end() == 0 and serve.end() == 0
    holder.kill(), waiter.kill()


def every_response_is_closed_to_others(folder):
    serve = Serve(folder, sqlite(folder))
    until("an answer", lambda: serve.ask("/healthz")[0] == 200)
    for path in ("/", "/page.css", "/page.js", "/icon.svg", "/locks.json", "/metrics", "/healthz", "/nothing", "/../etc/passwd"):
        status, headers, body = serve.ask(path, Origin="http://evil.example")
        assert status == (404 if "n" in path[1:3] or ".." in path else 200), (path, status)
        assert headers["content-security-policy"] == CSP and headers["cache-control"] == "no-store", (path, headers)
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin" and headers["connection"] == "close"
        assert not [h for h in headers if h.startswith("access-control")], headers
        head = serve.ask(path, "HEAD")
        assert head[0] == status and head[2] == b"" and int(head[1]["content-length"]) == len(serve.ask(path)[2])
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREAK"):
        status, headers, body = serve.ask("/locks.json", method)
        assert status == 405 and headers["allow"] == "GET, HEAD", (method, status)
    # a query changes nothing, and a very long one is refused
    assert serve.ask("/?prefix=x")[0] == 200 and serve.ask("/" + "x" * 20000)[0] in (414, 431)
    html = serve.ask("/")[2].decode()
    assert "style=" not in html and not re.search(r"<script(?! src)|\son\w+=", html)  # the policy would refuse it
    assert serve.end() == 0


def a_name_of_another_site_is_refused(folder):
    serve = Serve(folder, sqlite(folder))
    for host in ("localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:9750", "127.255.1.1", "[::1]", "[::1]:9750"):
        assert serve.ask("/", Host=host)[0] == 200, host
    for host in ("evil.example", "evil.example:9750", "127.0.0.1.evil.example", "localhost.evil.example", "localhost:80.evil.example",
                 "127.evil.example", "10.0.0.1", "[::2]", "localhost@evil.example", "", "0.0.0.0"):
        for path in ("/", "/locks.json", "/healthz"):
            assert serve.ask(path, Host=host)[0] == 403, host
    assert serve.ask("/", Host=None)[0] in (400, 403)
    assert serve.end() == 0


def the_token(folder):
    where, path = sqlite(folder), os.path.join(folder, "token")

    def write(text, mode=0o600):
        if os.path.exists(path):
            os.remove(path)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)

    for text, mode, why in ((TOKEN, 0o640, "other users can read it"), (TOKEN, 0o604, "other users can read it"), ("short", 0o600, "16 to 512"),
                            ("x" * 513, 0o600, "16 to 512"), ("with a blank in it", 0o600, "printable ASCII"), ("", 0o600, "16 to 512"),
                            ("\nthe-token-is-in-line-two", 0o600, "16 to 512"), ("kölnkölnkölnkölnköln", 0o600, "printable ASCII")):
        write(text, mode)
        code, says = refused(where, "--listen", "127.0.0.1:0", "--token-file", path)
        assert code == 78 and why in says, (text, code, says)
        assert not text or text not in says
    assert refused(where, "--listen", "127.0.0.1:0", "--token-file", path + ".none")[0] == 78
    assert refused(where, "--listen", "127.0.0.1:0", "--token-file", folder)[0] == 78
    for listen in ("0.0.0.0:0", "[::]:0"):
        code, says = refused(where, "--listen", listen)
        assert code == 64 and "needs --token-file" in says, (code, says)

    write(TOKEN + "\n")
    serve = Serve(folder, where, "--token-file", path)
    basic = lambda text: "Basic " + base64.b64encode(text.encode()).decode()
    for good in ("Bearer " + TOKEN, "bearer " + TOKEN, basic("me:" + TOKEN), basic(":" + TOKEN)):
        assert serve.ask("/locks.json", Authorization=good)[0] == 200, good
    for bad in (None, "", TOKEN, "Bearer", "Bearer ", "Bearer " + TOKEN[:-1], "Bearer " + TOKEN + "x", "Bearer " + TOKEN * 2, "Bearer X" + TOKEN[1:],
                basic(TOKEN), basic("me:"), basic("me:x" + TOKEN), basic("me:" + TOKEN + TOKEN), "Basic !!!", "Basic " + "QUJD" * 3000, "Digest x"):
        for where_to in ("/", "/locks.json", "/metrics", "/nothing"):
            status, headers, body = serve.ask(where_to, Authorization=bad)
            assert status in (401, 431) and b"locks" not in body, (bad, status)
    assert serve.ask("/")[1]["www-authenticate"].startswith("Basic ")
    assert serve.ask("/healthz")[0] in (200, 503)  # a probe has no token
    assert serve.ask("/locks.json", Authorization="Bearer " + TOKEN, Host="evil.example")[0] == 403
    assert serve.end() == 0


def of_other_hosts(folder, host):
    """Of an address that is no loopback one; in a namespace that has it. Called by another_host."""
    where, path = sqlite(folder), os.path.join(folder, "token")
    code, says = refused(where, "--listen", host + ":0")
    assert code == 64 and "needs --token-file" in says, (code, says)
    with open(path, "w") as file:
        file.write(TOKEN)
    os.chmod(path, 0o600)
    for listen, shown in ((host, host), ("0.0.0.0", "0.0.0.0") if ":" not in host else ("[::]", "[::]")):
        process = spawned([COMMAND, "-C", where, "serve", "--listen", listen + ":0", "--token-file", path], stderr=subprocess.PIPE, text=True)
        found = re.fullmatch(r"mortise: serve: http://%s:(\d+)/\n" % re.escape(shown), process.stderr.readline())

        def ask(page, token, name=None):
            connection = http.client.HTTPConnection(host.strip("[]"), int(found[1]), timeout=60)
            connection.putrequest("GET", page, skip_host=name is not None)
            for key, value in (("Authorization", token), ("Host", name)):
                if value is not None:
                    connection.putheader(key, value)
            connection.endheaders()
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            return answer.status, body

        for page in ("/", "/locks.json", "/metrics"):
            for bad in (None, "Bearer x" + TOKEN):
                status, body = ask(page, bad)
                assert status == 401 and b"locks" not in body, (page, bad, status, body)
            assert ask(page, "Bearer " + TOKEN)[0] == 200, page
            # the program does not know the names of this address, so the token alone decides
            assert ask(page, "Bearer " + TOKEN, "locks.example")[0] == 200
            assert ask(page, None, "locks.example")[0] == 401
        until("a probe, without a token", lambda: ask("/healthz", None)[0] == 200)
        process.terminate()
        assert process.wait(60) == 0
        process.stderr.close()
    # a unit whose ListenStream= names that address
    for words, code in (([], 64), (["--token-file", path], 0)):
        listener = socket.create_server((host.strip("[]"), 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        shell = 'exec 3<&%d; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"' % listener.fileno()
        process = spawned(["bash", "-c", shell, "serve", COMMAND, "-C", where, "serve", *words], pass_fds=[listener.fileno()],
                          stderr=subprocess.PIPE, text=True)
        says = process.stderr.readline()
        assert ("http://%s:" % host if code == 0 else "token-file") in says, says
        if code == 0:
            process.terminate()
        assert process.wait(60) == code, says
        process.stderr.close(), listener.close()


def another_host(folder):
    """On addresses that other hosts could reach, if this host were in a network: in a namespace of its own, whose loopback
    interface has them too."""
    shell = "ip link set lo up && ip address add 192.0.2.1/32 dev lo && { ip -6 address add 2001:db8::1/128 dev lo nodad || six=no; }; echo ${six:-yes}"
    if subprocess.run(["unshare", "-rn", "sh", "-c", shell], capture_output=True, text=True).returncode != 0:
        print("not checked: an address of other hosts (no network namespaces)")
        return
    for host in ("192.0.2.1", "[2001:db8::1]"):
        done = subprocess.run(["unshare", "-rn", "sh", "-c", shell + ' && exec "$@"', "sh", sys.executable, os.path.abspath(__file__),
                               "--of-other-hosts", folder, host], stdout=subprocess.PIPE, text=True, timeout=120)
        if ":" in host and done.stdout.startswith("no"):
            print("not checked: an IPv6 address of other hosts")
        else:
            assert done.returncode == 0, (host, done.returncode, done.stdout)


def one_listing_for_all(folder):
    """An hour between two listings: whatever visitors do, they see the first one."""
    where, holder = sqlite(folder), Holder(sqlite(folder))
    serve = Serve(folder, where, "--interval", "1h")
    first = until("an answer", lambda: serve.json()["at_ms"])
    holder.acquire("later")
    for _ in range(50):
        shown = serve.json()
        assert shown["at_ms"] == first and shown["held"] == 0, shown
    quick = Serve(folder, where, "--interval", "200ms")
    until("the next listing", lambda: quick.json()["held"] == 1)
    holder.say("release")
    until("the one after", lambda: quick.json()["held"] == 0)
    assert quick.json()["expired"] == 0  # a release is none
    assert serve.end() == 0 and quick.end() == 0
    holder.kill()


def soon_after_the_boot(folder):
    """The page shows the last hour also on a machine that has been up for less than that."""
    for up_s in (1, 40, 1800):
        early = ["unshare", "-rT", "--boottime", str(up_s - int(time.clock_gettime(time.CLOCK_BOOTTIME)))]
        if subprocess.run([*early, "true"], capture_output=True).returncode != 0:
            print("not checked: soon after the boot (no time namespaces)")
            return
        serve = Serve(folder, "sqlite:%s/up-%d.db" % (folder, up_s), before=early)
        until("an answer", lambda: serve.ask("/healthz")[0] == 200)
        history = serve.json()["history"]
        assert len(history["held"]) == 120 and history["held"][-1] == 0 and history["held"][0] is None, history
        assert serve.end() == 0


def sockets_of(serve):
    """How many it has open."""
    count, folder = 0, "/proc/%d/fd" % serve.process.pid
    for name in os.listdir(folder):
        try:
            count += os.readlink(os.path.join(folder, name)).startswith("socket:")
        except FileNotFoundError:
            pass  # closed meanwhile
    return count


def many_and_slow_visitors(folder):
    serve = Serve(folder, sqlite(folder))
    until("an answer", lambda: serve.ask("/healthz")[0] == 200)
    before = sockets_of(serve)
    silent = [serve.connect() for _ in range(30)]
    halfway = [serve.connect(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ") for _ in range(30)]
    assert serve.ask("/locks.json")[0] == 200
    for connection in silent + halfway:
        connection.close()
    until("their places are free", lambda: sockets_of(serve) < before + 10)
    assert serve.ask("/healthz")[0] == 200
    for garbage in (b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                    b"\x16\x03\x01\x02\x00\x01\x00", b"GET /" + b"%" * 500 + b" HTTP/1.1\r\n\r\n",
                    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"):
        serve.connect(garbage).close()
    assert serve.ask("/healthz")[0] == 200
    # it ends at once, with visitors in the middle
    waiting = serve.connect(b"GET / HTTP/1.1\r\n")
    assert serve.end() == 0
    try:
        assert waiting.recv(10) == b""
    except ConnectionResetError:
        pass


def the_backend_goes(folder):
    redis = Redis(folder)
    where = os.path.join(folder, "mortise.conf")
    with open(where, "w") as file:
        file.write("[mortise]\ndriver = redis\nunreachable_timeout = 300ms\nclose_timeout = 300ms\n[redis]\nservers = 127.0.0.1:%s\n" % redis.port)
    holder = Holder(where)
    holder.acquire("kept")
    serve = Serve(folder, where, "--interval", "200ms")
    until("an answer", lambda: serve.ask("/healthz")[0] == 200)
    assert serve.metric("mortise_backend_up") == 1 and serve.metric("mortise_backend_held") == 1
    redis.do("kill")
    until("it is seen", lambda: serve.ask("/healthz")[0] == 503)
    assert re.fullmatch(r"the backend has not answered since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", serve.ask("/healthz")[2].decode())
    shown = serve.json()
    assert shown["state"] == "down" and shown["error"] and shown["since_ms"] <= time.time() * 1000
    assert [lock["name"] for lock in shown["locks"]] == ["kept"] and shown["at_ms"] <= shown["since_ms"], shown
    assert shown["history"]["down"][-1] == 1
    assert serve.metric("mortise_backend_up") == 0 and serve.metric("mortise_backend_held") is None
    listing = subprocess.run([COMMAND, "-C", where, "list", "--prometheus"], capture_output=True, text=True)
    assert listing.returncode == 69 and re.search(r"^mortise_backend_up\{.*\} 0$", listing.stdout, re.M), listing
    since = shown["since_ms"]
    until("another try", lambda: serve.json()["since_ms"] == since)
    redis.do("start")
    until("it answers again", lambda: serve.ask("/healthz")[0] == 200)
    assert serve.json()["since_ms"] > since and serve.json()["error"] == ""
    assert "the backend answers again" in serve.says()
    assert serve.end() == 0
    holder.kill()


def it_is_seen_soon_that_the_backend_is_back(folder):
    """A listing fails after some seconds; the one after it must not wait for four times as long."""
    proxy, where = Proxy(folder, Redis(folder).port), os.path.join(folder, "mortise.conf")
    with open(where, "w") as file:
        file.write("[mortise]\ndriver = redis\nunreachable_timeout = 6s\nclose_timeout = 300ms\n[redis]\ncommand_timeout = 6s\nservers = 127.0.0.1:%s\n" % proxy.port)
    serve = Serve(folder, where, "--interval", "200ms")
    until("an answer", lambda: serve.ask("/healthz")[0] == 200)
    held = time.monotonic()
    proxy.do("hold")
    until("the listing fails", lambda: serve.ask("/healthz")[0] == 503)
    proxy.do("pass")
    healed = time.monotonic()
    until("it answers again", lambda: serve.ask("/healthz")[0] == 200)
    assert time.monotonic() - healed < 2 * (healed - held), (held, healed, time.monotonic())
    # Stopped in the middle of a listing: the page goes on after that.
    proxy.do("hold")
    taken = re.search(r"up_taken=(\d+)", proxy.do("count"))[1]
    until("a listing is under way", lambda: re.search(r"up_taken=(\d+)", proxy.do("count"))[1] != taken)
    serve.process.send_signal(signal.SIGSTOP)
    proxy.do("pass")
    serve.process.send_signal(signal.SIGCONT)
    before = serve.json()["at_ms"]
    until("another answer", lambda: serve.json()["at_ms"] > before and serve.json()["state"] == "up")
    assert serve.end() == 0


def nobody_reads_what_it_says(folder):
    """stderr is a full pipe: it serves on, and a signal ends it."""
    redis, where, pipe = Redis(folder), os.path.join(folder, "mortise.conf"), os.path.join(folder, "pipe")
    with open(where, "w") as file:
        file.write("[mortise]\ndriver = redis\nunreachable_timeout = 300ms\nclose_timeout = 300ms\n[redis]\nservers = 127.0.0.1:%s\n" % redis.port)
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # not the one that serve has: the flag is of this one alone
    with open(pipe, "wb", buffering=0) as stderr:
        serve = Serve.by_its_port(spawned([COMMAND, "-C", where, "serve", "--listen", "127.0.0.1:0", "--interval", "200ms"], stderr=stderr),
                                  lambda: os.read(end, 4096).decode() if select.select([end], [], [], 0)[0] else "")
    until("an answer", lambda: serve.ask("/healthz")[0] == 200)
    for size in (4096, 1):
        try:
            while True:
                os.write(end, b"x" * size)
        except BlockingIOError:
            pass
    redis.do("kill")
    until("it is seen", lambda: serve.ask("/healthz")[0] == 503)
    redis.do("start")
    until("it answers again", lambda: serve.ask("/healthz")[0] == 200)
    assert serve.end() == 0
    assert set(os.read(end, 1 << 20)) == {ord("x")}
    os.close(end)


def an_expired_claim_is_counted(folder):
    where, holder, other = sqlite(folder), Holder(sqlite(folder)), Holder(sqlite(folder))
    holder.acquire("dies", 5000)  # half of that is ten listings, so that a busy machine misses none
    other.acquire("lives", 5000)
    serve = Serve(folder, where, "--interval", "200ms")
    until("both are held", lambda: serve.json()["held"] == 2)
    holder.kill()
    until("its time is over", lambda: serve.json()["held"] == 1)
    shown = serve.json()
    assert shown["expired"] == 1 and sum(shown["history"]["expired"]) == 1, shown
    assert serve.metric("mortise_backend_expired_total") == 1
    assert serve.end() == 0
    other.kill()


def a_socket_from_systemd(folder):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    shell = 'exec 3<&%d; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"' % listener.fileno()
    process = spawned(["bash", "-c", shell, "serve", COMMAND, "-C", sqlite(folder), "serve"], pass_fds=[listener.fileno()],
                      stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "mortise: serve: http://127.0.0.1:%d/\n" % port
    with socket.create_connection(("127.0.0.1", port)) as visitor:
        visitor.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert visitor.recv(15) == b"HTTP/1.1 200 OK"
    process.terminate()
    assert process.wait(60) == 0
    process.stderr.close(), listener.close()


def started_by_the_first_visitor(folder):
    """As by the socket unit: systemd listens, and starts the program when a visitor comes."""
    activate = shutil.which("systemd-socket-activate")
    if activate is None:
        print("not checked: systemd-socket-activate (there is no systemd)")
        return
    port = free_port(folder)
    # activate starts with an empty environment
    keep = ["-E" + key for key in os.environ if key.startswith(("MORTISE_", "ASAN_", "LSAN_", "UBSAN_", "TSAN_", "HOME", "PATH", "LD_"))]
    process = spawned([activate, "-l", "127.0.0.1:%d" % port, *keep, COMMAND, "-C", sqlite(folder), "serve"], stderr=subprocess.PIPE, text=True)
    until("somebody listens", lambda: "Listening on 127.0.0.1:%d" % port in process.stderr.readline())

    def ask(page):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", page)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    assert ask("/") == 200  # the visitor that started it is served
    until("it lists the locks", lambda: ask("/healthz") == 200)
    process.terminate()  # it is the same process
    assert process.wait(60) == 0
    assert "mortise: serve: http://127.0.0.1:%d/\n" % port in process.stderr.read()
    process.stderr.close()


def what_is_refused_at_the_start(folder):
    where = sqlite(folder)
    for listen in ("", "9750", "localhost", "localhost:", "::1:9750", "[::1]", "127.0.0.1:65536", "127.0.0.1:http", ":9750", "[]:1"):
        code, says = refused(where, "--listen", listen)
        assert code == 64 and ("HOST:PORT" in says or "empty" in says), (listen, code, says)
    for words, code in ((["--interval", "1ms"], 64), (["--interval", "2h"], 64), (["a", "b"], 64), (["x" * 513], 64), (["--nothing"], 64)):
        assert refused(where, *words)[0] == code, words
    assert refused("nodriver:x", "--listen", "127.0.0.1:0")[0] == 78
    serve = Serve(folder, where)
    code, says = refused(where, "--listen", "127.0.0.1:%d" % serve.port)
    assert code == 75 and "another program listens there" in says, (code, says)
    assert serve.end() == 0


def metrics_are_few_and_valid(folder):
    """300 prefixes: the hundred largest, and the others together. The same by the command."""
    try:
        from prometheus_client.parser import text_string_to_metric_families as parse
    except ImportError:
        parse = None
    where, holder = sqlite(folder), Holder(sqlite(folder))
    for i in range(300):
        holder.acquire("p%03d/one" % i)
    for i in range(10):
        holder.acquire("p%03d/two" % i)
    holder.acquire('odd"\\\n/x'), holder.acquire("plain"), holder.acquire(b"\xff:x")
    serve = Serve(folder, where)
    until("an answer", lambda: serve.json()["state"] == "up")
    command = subprocess.run([COMMAND, "-C", where, "list", "--prometheus"], capture_output=True, check=True, text=True).stdout
    for text in (serve.ask("/metrics")[2].decode(), command):
        held = re.findall(r'^mortise_backend_held\{.*prefix="(.*)"\} (\d+)$', text, re.M)
        assert len(held) == 101 and sum(int(n) for _, n in held) == 313, held
        assert ("other", "203") in held and ("p003/", "2") in held
        if parse:
            families = {f.name: f for f in parse(text)}
            assert len(families["mortise_backend_held"].samples) == 101 and "mortise_backend_oldest_seconds" in families
    subset = subprocess.run([COMMAND, "-C", where, "list", "--prometheus", "odd"], capture_output=True, check=True, text=True).stdout
    # a backslash for Prometheus before each of what the command prints: \\ and \n
    assert 'prefix="odd\\"\\\\\\\\\\\\n/"} 1\n' in subset, subset
    if parse:
        sample = {f.name: f for f in parse(subset)}["mortise_backend_held"].samples[0]
        assert sample.labels["prefix"] == 'odd"\\\\\\n/', sample
    assert subprocess.run([COMMAND, "-C", where, "list", "--prometheus", "--json"], capture_output=True).returncode == 64
    assert serve.end() == 0
    holder.kill()


def metrics_of_what_cannot_be_opened(folder):
    """An alert that looks for mortise_backend_up == 0 sees nothing in an empty file."""
    junk, conf = os.path.join(folder, "junk.db"), os.path.join(folder, "mortise.conf")
    with open(junk, "wb") as file:
        file.write(b"no database, but long enough that SQLite looks at it\n" * 100)
    with open(conf, "w") as file:
        file.write("[mortise]\ndriver = sqlite\n[sqlite]\npath = %s\n" % junk)
    secret = "redis://me:hunter2@127.0.0.1:1/x?password=hunter2"
    for where, code, driver, config in (("sqlite:" + junk, 69, "sqlite", "sqlite:" + junk), (conf, 69, "", conf), (conf + ".none", 78, "", conf + ".none"),
                                        (secret, 78, "redis", "redis"), (secret.replace(":", "", 1), 78, "", ""),
                                        ("host=db password=hunter2", 78, "", ""), ("nodriver:host=db password=hunter2", 78, "nodriver", "nodriver"),
                                        ("nodriver:/x", 78, "nodriver", "nodriver:/x")):
        for words, named in (["-C", where], None), ([], where):
            done = subprocess.run([COMMAND, *words, "list", "--prometheus"], capture_output=True, text=True,
                                  env={k: v for k, v in os.environ.items() if k != "MORTISE_CONFIG"} | ({"MORTISE_CONFIG": named} if named else {}))
            lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
            assert done.returncode == code and lines == ['mortise_backend_up{driver="%s",config="%s"} 0' % (driver, config)], (where, done)
            assert "hunter2" not in done.stdout + done.stderr, done
        done = subprocess.run([COMMAND, "-C", where, "list", "--json"], capture_output=True, text=True)
        assert done.returncode == code and done.stdout == "", done


if sys.argv[1:2] == ["--of-other-hosts"]:
    try:
        of_other_hosts(*sys.argv[2:])
    finally:
        end_started()
    sys.exit()
main([shows_what_list_shows, every_response_is_closed_to_others, a_name_of_another_site_is_refused, the_token, another_host,
      one_listing_for_all, soon_after_the_boot, many_and_slow_visitors, the_backend_goes, it_is_seen_soon_that_the_backend_is_back, nobody_reads_what_it_says, an_expired_claim_is_counted, a_socket_from_systemd,
      started_by_the_first_visitor, what_is_refused_at_the_start, metrics_are_few_and_valid, metrics_of_what_cannot_be_opened])
