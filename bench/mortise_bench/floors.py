"""What the library adds to the work of a backend: the programs of bench/, each of which measures parts of a driver beside the same
requests by the bare client library. They run one after the other, each with servers of its own, and say themselves what their
targets are. They exist in a build tree only, so an installed mortise-bench has no such part."""

import contextlib
import json
import os
import subprocess

from . import parts
from .servers import NotHere, Servers
from .tables import number
from .targets import MET, MISSED

PROGRAMS = (
    "state", "cycle", "handover", "leases", "command", "redis", "redis_renew", "redis_queue", "redis_kinds", "redis_cluster",
    "redis_cluster_renew", "witness", "redlock", "postgres", "mysql", "etcd", "etcd_counts",
)  # fmt: skip
# Name of the figures: whether the server waits for its disk, whether it shares one processor with the program.
ZOOKEEPER = {"zookeeper": ("yes", False), "zookeeper_unforced": ("no", False), "zookeeper_one": ("no", True)}
EXPECTED_S, QUICK_S = 25, 3
PATIENCE_S, END_S = 900, 15  # bound failure only
NO_SERVER = 77  # exit status
NEVER = "never above"  # a bound that the worst round has to meet


class Failed(Exception):
    """A program that says what is wrong with it on standard error."""


def program(name):
    return parts.programs / name


def there():
    """The names of those that this build has."""
    names = [*PROGRAMS, *(ZOOKEEPER if os.access(program("zookeeper"), os.X_OK) else ())]
    return [name for name in names if name in ZOOKEEPER or os.access(program(name), os.X_OK)]


def absent():
    """Of a build tree: those that were not built. An installed mortise-bench has none of them."""
    found = there()
    return [name for name in (*PROGRAMS, "zookeeper") if name not in found] if found else []


def ended(process):
    """It is asked first: it has servers of its own to end."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def figures_of(command, path, environment):
    with subprocess.Popen(
        [*command, "--json", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment}, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _, error = process.communicate(timeout=PATIENCE_S)
        except BaseException:
            ended(process)
            raise
    if process.returncode == NO_SERVER:
        raise NotHere(error.strip().splitlines()[-1] if error.strip() else "there is no server")
    if process.returncode != 0:
        raise Failed(f"it ended with {process.returncode}: {error.strip()[-300:]}")
    return json.loads(path.read_text(encoding="utf-8"))


def zookeeper(name, folder, cpu):
    """Options and environment of the program, whose server this starts until the context ends."""
    sync, pinned = ZOOKEEPER[name]

    @contextlib.contextmanager
    def context():
        server = Servers("zookeeper", folder / f"servers-{name}", {cpu} if pinned else None, (f"sync={sync}", "tick=1000", "heap=128m"))
        server.start()
        try:
            where = f"127.0.0.1:{server.ports()[0]}"
            yield ["--cpu", str(cpu)] if pinned else [], {"MORTISE_BENCH_KIND": name, "MORTISE_BENCH_ZOOKEEPER": where}
        finally:
            server.end()

    return context()


def measure(name, quick, folder, cpu):
    """The figures of one program, as it writes them."""
    options = ["--quick"] if quick else []
    path = folder / f"{name}.json"
    if name not in ZOOKEEPER:
        return figures_of([program(name), *options], path, {})
    with zookeeper(name, folder, cpu) as (more, environment):
        return figures_of([program("zookeeper"), *options, *more], path, environment)


def spread(found):
    return "once" if found.get("once") else f"{number(found['least'])} to {number(found['most'])}"


def target_rows(found):
    """A row for each check that has a target."""
    for told in found:
        for check in told["checks"]:
            if "median" in check and "bound" not in check:
                continue  # a ratio for the reader
            unit = f" {check['unit']}" if check.get("unit") else ""
            bound, value = "must hold", "it holds" if check["verdict"] == MET else "it does not hold"
            if "median" in check:
                bound = f"{check['bound']} {check['target']:g}{unit}"
                value = f"{number(check['median'])}{unit} ({spread(check)})"
            met = {MET: True, MISSED: False}.get(check["verdict"])
            yield {
                "backend": f"bench/{told['program']}", "place": "", "what": check["label"], "bound": bound, "found": value,
                "verdict": check["verdict"], "met": met, "once": check.get("once", False) or bound.startswith(NEVER),
            }  # fmt: skip


def table_rows(told):
    """(label, median, spread, target, verdict) of each figure of a program."""
    for series in told["series"]:
        yield series["label"], f"{number(series['median'])} {series['unit']}", spread(series), "", ""
    for check in told["checks"]:
        unit = f" {check['unit']}" if check.get("unit") else ""
        if "median" not in check:
            yield check["label"], "", "", "must hold", check["verdict"]
            continue
        target = f"{check['bound']} {check['target']:g}{unit}" if "bound" in check else ""
        yield check["label"], f"{number(check['median'])}{unit}", spread(check), target, check["verdict"] if target else ""


def title_of(told):
    pinned = f", all on processor {told['cpu']}" if told["cpu"] >= 0 else ""
    return f"bench/{told['program']}", f"{told['title']}; median of {told['rounds']} rounds{pinned}"
