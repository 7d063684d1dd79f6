"""Private servers, by servers.sh; what they were asked and what that cost them, as far as their kind tells."""

import contextlib
import os
import re
import selectors
import shutil
import socket
import subprocess
import time

from . import parts

running = []  # all groups that were made and not ended
TICKS = os.sysconf("SC_CLK_TCK")


class NotHere(Exception):
    """A server that cannot be started on this machine."""


def cpu_s(pid):
    """Processor seconds of a process, and of the children that it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS


def memory_bytes(pid):
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def own_memory_bytes(pid):
    """Less what it shares with others, as the processes of PostgreSQL do."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            _, resident, shared, *_ = map(int, file.read().split())
            return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def leave_time(process):
    """What is being started is noted soon after; only then can it be ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=120)


class Counter:
    """What the servers count themselves, since it was made; each look is `own` of them."""

    def __init__(self, count, own):
        self.count, self.own, self.at, self.before = count, own, time.monotonic(), count()

    def a_second(self, _seconds):
        return max(0, self.count() - self.before - self.own) / (time.monotonic() - self.at)


class Monitors:
    """Redis counts what scripts execute as well, so it is asked for what clients send, for a spell of its own."""

    def __init__(self, ports):
        self.ports = ports

    def a_second(self, seconds):
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
            for port in self.ports:
                server = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                server.sendall(b"MONITOR\r\n")
                selector.register(server, selectors.EVENT_READ, [server.recv(5), b""])  # "+OK"
            began, sent = time.monotonic(), 0
            while (left_s := began + seconds - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    *lines, key.data[1] = (key.data[1] + key.fileobj.recv(1 << 20)).split(b"\n")
                    sent += sum(b" lua] " not in line[:40] for line in lines)
            return sent / (time.monotonic() - began)


def end_all():
    """However far they are: for an end before the end."""
    for servers in list(running):
        servers.end()


class Servers:
    """A group of servers of one kind."""

    def __init__(self, kind, folder, cpus=None, settings=()):
        self.kind, self.folder, self.cpus, self.settings = kind, folder, cpus, settings
        folder.mkdir(parents=True)
        os.chmod(folder, 0o711)  # a server may have to run as another user
        self.values = {}
        running.append(self)

    def verb(self, verb, *words):
        """Not in the terminal's group: a ^C would leave half of it done. Whoever is interrupted ends all servers, and
        that needs what this has noted."""
        with subprocess.Popen(
            ["sh", str(parts.servers), verb, self.kind, str(self.folder), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=(lambda: os.sched_setaffinity(0, self.cpus)) if self.cpus else None,
        ) as process:
            try:
                out, problem = process.communicate()
            except BaseException:
                if verb == "start":
                    leave_time(process)
                process.kill()
                raise
        if process.returncode == 77:
            raise NotHere(problem.strip().rpartition("skipped: ")[2])
        if process.returncode != 0:
            raise NotHere(f"{self.kind}: {verb}: {problem.strip()}")
        return out

    def start(self, *words):
        if not shutil.which("sh") or not parts.servers.exists():
            raise NotHere(f"{parts.servers} is not there")
        settings = () if self.values else self.settings
        out = self.verb("start", *words, *settings, f"guard={os.getpid()}")
        self.values = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)

    def ports(self):
        numbered = [(key, value) for key, value in self.values.items() if re.fullmatch(r"PORT\d*", key)]
        return [int(value) for _, value in sorted(numbered, key=lambda pair: int(pair[0][4:] or 1))]

    def end(self):
        command = ["sh", str(parts.servers), "end", self.kind, str(self.folder)]
        subprocess.run(command, check=False, start_new_session=True)
        if self in running:
            running.remove(self)

    # ---- what it is ----

    def described(self):
        """What it is and how it is set, as it says itself, for people."""
        ways = {"redis": self.redis_itself, "zookeeper": self.zookeeper_itself, "postgres": self.postgres_itself,
                "mysql": self.mysql_itself, "etcd": self.etcd_itself}
        try:
            version, settings = ways[self.kind]()
        except (OSError, TypeError, NotHere) as error:
            version, settings = f"not told: {error}", []
        return {"version": version, "settings": " ".join([*self.settings, *settings])}

    def redis_itself(self):
        answer = self.told(self.ports()[0], b"INFO server\r\nINFO persistence\r\nCONFIG GET save\r\nQUIT\r\n")
        saves = re.search(r"\$4\r\nsave\r\n\$\d+\r\n([^\r]*)", answer)[1]
        aof = "yes" if re.search(r"aof_enabled:(\d)", answer)[1] == "1" else "no"
        return re.search(r"redis_version:(\S+)", answer)[1], [f'appendonly={aof} save="{saves}"']

    def zookeeper_itself(self):
        """With what its JVM was told."""
        with open(f"/proc/{self.pids()[0]}/cmdline", encoding="utf-8", errors="replace") as file:
            words = file.read().split("\0")
        flags = [word for word in words if word.startswith(("-X", "-Dzookeeper", "-Dznode"))]
        return re.search(r"version: ([^,]+)", self.told(self.ports()[0], b"srvr"))[1], flags

    def postgres_itself(self):
        query = (
            "SELECT name || '=' || setting FROM pg_settings WHERE source IN ('configuration file', 'command line') "
            "OR name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers')"
        )
        paths = re.compile(r"\w*(director|file|path|hosts|port|address|zone|locale|lc_|search)|DateStyle|TimeZone|log")
        words = [word for word in self.verb("ask", "-c", query).splitlines() if not paths.match(word)]
        return self.verb("ask", "-c", "SHOW server_version").strip(), words

    def etcd_itself(self):
        answer = self.told(self.ports()[0], b"GET /version HTTP/1.0\r\n\r\n")
        return re.search(r'"etcdserver":"([^"]+)"', answer)[1], []

    def mysql_itself(self):
        query = (
            "SELECT CONCAT(LOWER(variable_name), '=', variable_value) FROM information_schema.global_variables "
            "WHERE variable_name IN ('innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'innodb_buffer_pool_size')"
        )
        return self.verb("ask", "-e", "SELECT VERSION()").strip(), self.verb("ask", "-e", query).split()

    def uptime_s(self):
        """Of the youngest of several Redis servers."""
        answers = [self.told(port, b"INFO server\r\nQUIT\r\n") for port in self.ports()]
        return min(int(re.search(r"uptime_in_seconds:(\d+)", answer)[1]) for answer in answers)

    # ---- what it cost ----

    def pids(self):
        return [int(file.read_text().split()[0]) for file in self.folder.glob("[0-9]*.pid")]

    def cpu_s(self):
        return sum(cpu_s(pid) + sum(map(cpu_s, children(pid))) for pid in self.pids())

    def requests(self):
        """A count of them, begun; None where the kind does not tell."""
        if self.kind == "redis":
            return Monitors(self.ports())
        if self.kind == "zookeeper":
            return Counter(self.zookeeper_packets, len(self.ports()))  # a four-letter word is a packet of each
        if self.kind == "etcd":
            return Counter(self.etcd_messages, 0)
        return Counter(self.transactions, 1) if self.kind == "postgres" else None

    def told(self, port, question):
        with socket.create_connection(("127.0.0.1", port), 5) as server:
            server.sendall(question)
            answer = b""
            while data := server.recv(65536):
                answer += data
        return answer.decode(errors="replace")

    def etcd_messages(self):
        answers = [self.told(port, b"GET /metrics HTTP/1.0\r\n\r\n") for port in self.ports()]
        received = re.compile(r"^grpc_server_msg_received_total\{.*\} (\S+)$", re.MULTILINE)
        return int(sum(float(count) for answer in answers for count in received.findall(answer)))

    def zookeeper_packets(self):
        answers = [self.told(port, b"mntr") for port in self.ports()]
        return sum(int(re.search(r"zk_packets_received\s+(\d+)", answer)[1]) for answer in answers)

    def transactions(self):
        query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'mortise'"
        return int(self.verb("ask", "-c", query).strip())
