"""Private servers, by servers.sh; what they were asked and what that cost them, as far as their kind tells."""

import os
import re
import shutil
import socket
import subprocess

from . import parts

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


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


class Servers:
    """A group of servers of one kind."""

    def __init__(self, kind, folder, cpus=None, settings=()):
        self.kind, self.folder, self.cpus, self.settings = kind, folder, cpus, settings
        folder.mkdir(parents=True)
        os.chmod(folder, 0o711)  # a server may have to run as another user
        self.values = {}
        self.asked = 0

    def verb(self, verb, *words):
        done = subprocess.run(
            ["sh", str(parts.servers), verb, self.kind, str(self.folder), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=(lambda: os.sched_setaffinity(0, self.cpus)) if self.cpus else None,
        )
        if done.returncode == 77:
            raise NotHere(done.stderr.strip().rpartition("skipped: ")[2])
        if done.returncode != 0:
            raise NotHere(f"{self.kind}: {verb}: {done.stderr.strip()}")
        return done.stdout

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
        subprocess.run(["sh", str(parts.servers), "end", self.kind, str(self.folder)], check=False)

    # ---- what it cost ----

    def pids(self):
        return [int(file.read_text().split()[0]) for file in self.folder.glob("[0-9]*.pid")]

    def cpu_s(self):
        return sum(cpu_s(pid) + sum(map(cpu_s, children(pid))) for pid in self.pids())

    def requests(self):
        """How many there were, less those of asking for it; None where the kind does not tell."""
        ways = {
            "redis": (self.redis_commands, 2),
            "zookeeper": (self.zookeeper_packets, 0),
            "postgres": (self.transactions, 1),
        }
        if self.kind not in ways:
            return None
        count, own = ways[self.kind]
        self.asked += 1
        return count() - own * len(self.ports()) * (self.asked - 1)

    def told(self, port, question):
        with socket.create_connection(("127.0.0.1", port), 5) as server:
            server.sendall(question)
            answer = b""
            while data := server.recv(65536):
                answer += data
        return answer.decode(errors="replace")

    def redis_commands(self):
        answers = [self.told(port, b"INFO stats\r\nQUIT\r\n") for port in self.ports()]
        return sum(int(re.search(r"total_commands_processed:(\d+)", answer)[1]) for answer in answers)

    def zookeeper_packets(self):
        answers = [self.told(port, b"mntr") for port in self.ports()]
        return sum(int(re.search(r"zk_packets_received\s+(\d+)", answer)[1]) for answer in answers)

    def transactions(self):
        query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'mortise'"
        return int(self.verb("ask", "-c", query).strip())
