"""The whole run: each place, in it each backend, in it each workload; and what is left of the time."""

import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from . import costs, failures, figures, machine, subjects, workloads
from .adapter import Failed
from .servers import NotHere, Servers

ROUNDS = {"cycle": workloads.cycle, "contend": workloads.contend, "state": workloads.state}
ONCE = {"wait": costs.wait, "renew": costs.renew, "fail": failures.fail}
WORKLOADS = (*ROUNDS, *ONCE)


@dataclass(frozen=True)
class Settings:
    rounds: int
    warm_s: float
    seconds: dict  # of a measurement in one round, by workload
    thread_counts: tuple
    processes: int
    threads: int
    holds_us: tuple
    waiters: tuple
    held: tuple
    kills: int


QUICK = Settings(
    2, 0.05, {"cycle": 0.1, "contend": 0.2, "state": 0.05, "wait": 1, "renew": 1, "fail": 3}, (4,), 2, 2, (0,), (5,), (50,), 1
)
FULL = Settings(
    5, 0.3, {"cycle": 0.5, "contend": 0.8, "state": 0.1, "wait": 3, "renew": 6, "fail": 9}, (8, 64), 8, 8, (0, 1000),
    (10, 100), (1000,), 2,
)  # fmt: skip


@dataclass
class Context:
    """One backend in one place, while its servers run."""

    place: str
    backend: str
    cpus: set
    settings: Settings
    folder: Path
    with_rivals: bool = True
    servers: Servers = None
    ports: tuple = ()
    url: str = ""  # one that the user gave
    label: str = "mortise"

    def subjects(self, strict=False):
        """strict: also the order between processes, hand-over for hand-over."""
        url = self.url or subjects.url_of(self.backend, self.ports, self.folder)
        found = [subjects.mortise(url, label=self.label)]
        if strict and (not self.url or "://" in url):
            label = f"{self.label}, handover_max = 0"
            found.append(subjects.mortise(subjects.with_setting(url, "handover_max=0"), "mortise_strict", label))
        if self.backend in subjects.KINDS and (self.ports or self.backend == "sqlite"):
            found += subjects.floors(self.backend, self.ports, self.folder)
            if self.with_rivals:
                found += subjects.rivals(self.backend, self.ports, self.folder)
        return found


def config_context(where, **words):
    """A config or URL of the user's: beside floors and rivals where it is plainly a server on this machine."""
    scheme, _, rest = where.partition("://")
    scheme = {"postgresql": "postgres"}.get(scheme, scheme)
    ports = tuple(int(port) for port in re.findall(r"(?:127\.0\.0\.1|localhost):(\d+)", re.split(r"[/?]", rest)[0]))
    known = scheme in subjects.KINDS and ports
    label = where.partition("?")[0] if "@" not in where else "mortise"
    return Context(backend=scheme if known else "config", ports=ports if known else (), url=where, label=label, **words)


class Progress:
    """A line on a terminal; one line for each workload elsewhere, if at all."""

    def __init__(self, planned_s, stream=sys.stderr):
        self.planned_s, self.done_s, self.began, self.stream = planned_s, 0.0, time.monotonic(), stream
        self.terminal = stream.isatty()

    def tell(self, what):
        if not self.terminal:
            return
        left_s = self.planned_s - self.done_s
        if self.done_s > 0.02 * self.planned_s:
            left_s *= (time.monotonic() - self.began) / self.done_s
        left = f"{left_s / 60:.0f} min" if left_s > 90 else f"{left_s:.0f} s"
        part = 100 * self.done_s / self.planned_s if self.planned_s else 0
        self.stream.write(f"\r\033[K{min(part, 99):3.0f} %  about {left} left  {what}"[:150])
        self.stream.flush()

    def add(self, seconds):
        self.done_s += seconds

    def note(self, text):
        self.stream.write(("\r\033[K" if self.terminal else "") + text + "\n")

    def end(self):
        if self.terminal:
            self.stream.write("\r\033[K")


class Run:
    def __init__(self, settings, places, wanted, backends, configs, with_rivals):
        self.settings, self.places, self.wanted = settings, places, wanted
        self.backends, self.configs, self.with_rivals = backends, configs, with_rivals
        self.cases, self.left_out = [], []
        self.folder = Path(tempfile.mkdtemp(prefix="mortise-bench-"))
        self.folder.chmod(0o711)
        self.progress = Progress(0)

    # ---- what there is to do ----

    def contexts(self):
        for place, cpus in self.places.items():
            words = {"place": place, "cpus": cpus, "settings": self.settings, "with_rivals": self.with_rivals}
            for number, where in enumerate(self.configs):
                yield config_context(where, folder=self.folder / f"{place}-config-{number}", **words)
            for backend in self.backends:
                yield Context(backend=backend, folder=self.folder / f"{place}-{backend}", **words)

    def workloads_in(self, context):
        """What is counted on the server needs no second place."""
        last = list(self.places)[-1]
        return [name for name in self.wanted if name in ROUNDS or context.place == last]

    def cost_s(self, workload, case):
        settings = self.settings
        seconds = settings.seconds[workload] * (1 + workloads.SETTLE) + workloads.LEAD_S
        if workload in ROUNDS:
            return settings.rounds * seconds + settings.warm_s + 0.3
        return (3 if isinstance(case, failures.Killed) else seconds) + 2

    def times(self, case):
        return self.settings.kills if isinstance(case, failures.Killed) else 1

    def plan(self):
        """The seconds of it all, with ports that are none."""
        total = 0
        for context in self.contexts():
            context.ports = context.ports or (1, 2, 3, 4, 5)
            for name in self.workloads_in(context):
                cases = {**ROUNDS, **ONCE}[name](context)
                total += sum(self.times(case) * self.cost_s(name, case) for case in cases)
        self.progress.planned_s = total

    # ---- doing it ----

    def leave_out(self, what, why):
        self.left_out.append({"what": what, "why": str(why)})
        self.progress.note(f"left out: {what}: {why}")

    def opened(self, case):
        name = f"{case.workload}, {case.subject.label}, {case.context.backend}, {case.context.place}"
        try:
            case.open()
            return True
        except (Failed, OSError) as error:
            case.close()
            self.leave_out(name, error)
            return False

    def one_round(self, name, cases, seconds, counts):
        """Each in turn; one that fails is taken out."""
        for case in list(cases):
            what = f"{case.context.place}, {case.context.backend}: {name}, {case.shape}, {case.subject.label}"
            self.progress.tell(what)
            try:
                case.round(seconds, counts)
            except (Failed, OSError, NotHere, ValueError, ZeroDivisionError) as error:
                cases.remove(case)
                case.close()
                self.leave_out(what, error)
            if counts:
                self.progress.add(self.cost_s(name, case) / (self.settings.rounds if name in ROUNDS else 1))

    def in_rounds(self, name, context):
        cases = [case for case in ROUNDS[name](context) if self.opened(case)]
        try:
            self.one_round(name, cases, self.settings.warm_s, False)
            for _ in range(self.settings.rounds):
                self.one_round(name, cases, self.settings.seconds[name], True)
        finally:
            for case in cases:
                case.close()
        self.cases += [case.result() for case in cases if case.rounds]

    def once(self, name, context):
        cases = ONCE[name](context)
        for case in list(cases):
            one = [case]
            for _ in range(self.times(case)):
                self.one_round(name, one, self.settings.seconds[name], True)
            if not one:
                cases.remove(case)
        self.cases += [case.result() for case in cases if case.rounds]

    def start_servers(self, context):
        kind, settings = subjects.KINDS.get(context.backend, (None, ()))
        context.folder.mkdir(mode=0o711, exist_ok=True)
        if kind is None or context.url:
            return
        servers = Servers(kind, context.folder / "servers", context.cpus, settings)
        try:
            servers.start()
        except NotHere:
            servers.end()
            raise
        context.servers, context.ports = servers, tuple(servers.ports())

    def measure(self, context):
        try:
            self.start_servers(context)
        except NotHere as error:
            self.leave_out(f"{context.backend}, {context.place}", error)
            return
        try:
            for name in self.workloads_in(context):
                (self.in_rounds if name in ROUNDS else self.once)(name, context)
        finally:
            if context.servers is not None:
                context.servers.end()

    def everything(self):
        """The result, as it is written."""
        began = time.monotonic()
        described = machine.describe()
        try:
            self.plan()
            for context in self.contexts():
                self.measure(context)
        finally:
            self.progress.end()
            shutil.rmtree(self.folder, ignore_errors=True)
        figures.add_ratios(self.cases)
        return {
            "format": figures.FORMAT,
            "machine": described,
            "method": {
                "quick": self.settings is QUICK,
                "rounds": self.settings.rounds,
                "seconds": self.settings.seconds,
                "warm_up_s": self.settings.warm_s,
                "places": {name: sorted(cpus) if cpus else "not pinned" for name, cpus in self.places.items()},
                "took_s": round(time.monotonic() - began),
            },
            "left_out": self.left_out,
            "cases": self.cases,
        }
