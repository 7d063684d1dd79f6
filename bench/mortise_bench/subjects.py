"""What there is to measure: the drivers, the floor of each, and the rivals on the same server."""

import functools
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import parts


@dataclass(frozen=True)
class Subject:
    """One that an adapter speaks for. `can` names the shapes and workloads that it knows."""

    name: str
    kind: str  # driver, floor or rival
    label: str
    command: tuple
    where: str
    can: frozenset
    environment: dict = field(default_factory=dict, hash=False, compare=False)
    labels: dict = field(default_factory=dict, hash=False, compare=False)  # where a workload needs another
    compile_s: float = 0  # of a virtual machine: how long, at the most, until it has compiled what it runs

    @property
    def renews(self):
        """By itself. "renews": also where it is not measured at that."""
        return not self.can.isdisjoint({"renew", "renews"})

    def label_in(self, workload):
        return self.labels.get(workload, self.label)


JAVA_S, V8_S = 5, 1
RENEWING = "turns threads contend hold renew wait"  # a rival that renews by itself
FLYING_RENEWING = "turns flights contend hold renew wait"  # one with promises in place of threads
MORTISE = frozenset("turns threads many contend hold renew wait state pulse scale".split())

# Servers that servers.sh is to start, and their settings.
KINDS = {
    "sqlite": (None, ()),
    "redis": ("redis", ()),
    "redlock": ("redis", ("nodes=5",)),
    "postgres": ("postgres", ("conf=max_connections=1200",)),
    "mysql": ("mysql", ("conf=max_connections=1200",)),
    "zookeeper": ("zookeeper", ("tick=1000", "heap=128m", "conf=maxSessionTimeout=60000")),
    "etcd": ("etcd", ()),
}


# Without a disk, a started node does not vote until the longest ttl (max_ttl) is over. So max_ttl is short here, and the
# benchmark waits for it before it measures anything.
VOTES_AFTER_S = 5
SESSION_S = 4
LONG_TTL_S = 30  # the default, which a caller waits for if nothing frees the lock of a dead process earlier


def await_votes(backend, servers, votes_after_s=VOTES_AFTER_S):
    while backend == "redlock" and servers.uptime_s() <= votes_after_s:
        time.sleep(0.1)


def mortise(url, name="mortise", label="mortise", can=MORTISE):
    return Subject(name, "driver", label, (parts.adapter("mortise"),), url, can)


def with_setting(url, setting):
    return f"{url}{'&' if '?' in url else '?'}{setting}"


def url_of(backend, ports, folder, ttl_s=None):
    """The driver's URL of servers at these ports. ttl_s: so long a session, or a longest ttl."""
    first = f"127.0.0.1:{ports[0]}" if ports else ""
    votes_s, session_s = ttl_s or VOTES_AFTER_S, ttl_s or SESSION_S
    return {
        "sqlite": f"sqlite:{folder}/locks.db",
        "redis": f"redis://{first}",
        "redlock": "redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports) + f"?max_ttl={votes_s}s&ttl={votes_s}s",
        "postgres": f"postgresql://mortise@{first}/mortise",
        "mysql": f"mysql://mortise@{first}/mortise",
        "zookeeper": f"zookeeper://{first}/bench?session_timeout={session_s}s",
        "etcd": f"etcd://{first}/bench",
    }[backend]


# ---- floors ----


# By backend: the adapter, what it can do, and its name: for a cycle, and for other workloads if it differs.
FLOORS = {
    "sqlite": ("floor_local", "turns contend state", "bare SQLite", {"contend": "flock(2)", "state": "the clock"}),
    "redis": ("floor_redis", "turns threads many contend", "bare hiredis", {"contend": "BLPOP and RPUSH, no lock"}),
    "redlock": ("floor_redlock", "loop", "bare hiredis, three answered", {}),
    "postgres": ("floor_postgres", "turns threads contend hold", "bare libpq",
                 {"contend": "advisory lock", "fail": "advisory lock"}),
    "mysql": ("floor_mysql", "turns threads contend hold", "bare libmariadb", {"contend": "GET_LOCK", "fail": "GET_LOCK"}),
    "zookeeper": ("floor_zookeeper", "turns many", "bare create + delete", {}),
    "etcd": ("floor_etcd", "turns threads", "bare put + delete", {}),
}


def floors(backend, ports, folder):
    if backend not in FLOORS:
        return []
    name, can, label, labels = FLOORS[backend]
    command = parts.adapter(name)
    if not os.access(command, os.X_OK):
        return []
    where = {
        "sqlite": str(folder),
        "postgres": url_of("postgres", ports, folder),
        "mysql": url_of("mysql", ports, folder),
        "zookeeper": f"127.0.0.1:{ports[0]}" if ports else "",
        "etcd": f"127.0.0.1:{ports[0]}" if ports else "",
    }.get(backend, ",".join(map(str, ports)))
    found = [Subject(name, "floor", label, (command,), where, frozenset(can.split()), labels=labels)]
    if backend == "redlock":
        in_turn = f"in-turn:{where}"
        found.append(Subject(f"{name}_in_turn", "floor", "bare hiredis, one by one", (command,), in_turn, frozenset({"loop"})))
    return found


# ---- rivals ----


def installed_folder():
    """Where install.sh puts what it fetches."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(os.environ.get("MORTISE_BENCH_RIVALS") or Path(home) / "mortise-bench/rivals")


@functools.cache
def python_with(module):
    """An interpreter that has the module: this one, or the system's."""
    for interpreter in (sys.executable, "/usr/bin/python3"):
        if os.access(interpreter, os.X_OK):
            found = subprocess.run([interpreter, "-c", f"import {module}"], capture_output=True, check=False)
            if found.returncode == 0:
                return interpreter
    return None


def python_rival(name, module, label, where, can):
    interpreter = python_with(module)
    if interpreter is None:
        return []
    command = (interpreter, parts.rivals / f"{name}.py")
    return [Subject(name, "rival", label, command, where, frozenset(can.split()))]


def node_rival(name, package, label, where, can):
    modules = installed_folder() / "node_modules"
    if not shutil.which("node") or not (modules / package).is_dir():
        return []
    command, environment = ("node", parts.rivals / f"{name}.js"), {"NODE_PATH": str(modules)}
    return [Subject(name, "rival", label, command, where, frozenset(can.split()), environment, compile_s=V8_S)]


JARS = (
    "curator-client", "curator-framework", "curator-recipes", "zookeeper", "zookeeper-jute", "netty-*", "slf4j-api",
    "slf4j-nop", "guava", "failureaccess", "metrics-core", "snappy-java",
)  # fmt: skip


def curator(where):
    classes = installed_folder() / "classes"
    if not shutil.which("java") or not (classes / "Curator.class").is_file():
        return []
    jars = [str(jar) for pattern in JARS for jar in sorted(Path("/usr/share/java").glob(f"{pattern}.jar"))]
    path = ":".join([str(classes), *jars])
    command = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", path, "Curator")
    can = frozenset(RENEWING.split())
    return [Subject("curator", "rival", "Curator InterProcessMutex", command, where, can, compile_s=JAVA_S)]


def tuned(found, name, label, **environment):
    """The same, looking more often than it does by itself: for a lock that is contended. Nothing, if it is not there."""
    return [
        replace(rival, name=name, label=label, can=frozenset({"contend"}), environment={**rival.environment, **environment})
        for rival in found
    ]


VESSEL, RED_MUTEX = "redis-plus-plus RedLockMutexVessel", "redis-plus-plus RedMutex"


def redis_plus_plus(where):
    """Its two classes, by label. RedMutex sleeps before its first try, too, so the other one makes the cycles. Built where the
    library was found."""
    command = parts.adapter("redis_plus_plus")
    if not os.access(command, os.X_OK):
        return {VESSEL: [], RED_MUTEX: []}
    vessel = [Subject("redis_plus_plus", "rival", VESSEL, (command,), where, frozenset("turns threads contend".split()))]
    mutex = Subject("red_mutex", "rival", RED_MUTEX, (command,), where, frozenset("contend hold renew wait".split()),
                    {"REDIS_PLUS_PLUS_CLASS": "RedMutex"})  # fmt: skip
    tuned_vessel = tuned(vessel, "redis_plus_plus_tuned", f"{VESSEL}, retry_delay 10 ms", REDIS_PLUS_PLUS_RETRY_MS="10")
    return {VESSEL: vessel + tuned_vessel, RED_MUTEX: [mutex]}


def known_rivals(backend, ports=(), folder=""):
    """By label: the subjects; none, where it is not installed."""
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
    if backend == "redis":
        redis_py = python_rival("redis_py", "redis", "redis-py Lock", addresses, "turns threads contend hold wait")
        tuned_redis_py = tuned(redis_py, "redis_py_tuned", "redis-py Lock, sleep=0.01", REDIS_PY_SLEEP="0.01")
        redlock = "node-redlock, one node"
        return {
            "redis-py Lock": redis_py + tuned_redis_py,
            **redis_plus_plus(addresses),
            "redis-semaphore": node_rival("redis_semaphore", "redis-semaphore", "redis-semaphore", addresses, FLYING_RENEWING),
            redlock: node_rival("redlock", "redlock", redlock, addresses, "turns flights contend hold wait"),
        }
    if backend == "redlock":
        redlock = node_rival("redlock", "redlock", "node-redlock", addresses, "turns flights contend hold wait")
        tuned_redlock = tuned(redlock, "redlock_tuned", "node-redlock, retryDelay: 10", REDLOCK_RETRY_MS="10")
        semaphore, can = "redis-semaphore, Redlock", "turns flights contend hold renew"
        return {
            "node-redlock": redlock + tuned_redlock,
            **redis_plus_plus(addresses),
            semaphore: node_rival("redis_semaphore", "redis-semaphore", semaphore, addresses, can),
        }
    if backend == "zookeeper":
        return {
            "kazoo Lock": python_rival("kazoo_lock", "kazoo", "kazoo Lock", addresses, RENEWING),
            "Curator InterProcessMutex": curator(addresses),
        }
    if backend == "etcd":
        there = shutil.which("etcdctl")
        can = "turns threads contend hold renews wait"  # 1,000 held locks are 1,000 programs
        return {"etcdctl lock": python_rival("etcdctl_lock", "select", "etcdctl lock", addresses, can) if there else []}
    if backend == "sqlite":
        can = frozenset("turns threads contend hold".split())
        flock = Subject("flock", "rival", "flock(1)", (parts.adapter("flock"),), str(folder), can)
        return {"flock(1)": [flock] if shutil.which("flock") else []}
    return {}


def rivals(backend, ports, folder):
    return [rival for found in known_rivals(backend, ports, folder).values() for rival in found]


def absent_rivals(backend):
    return [label for label, found in known_rivals(backend).items() if not found]
