"""The whole run: each place, in it each backend, in it each workload; and what is left of the time."""

import contextlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from . import adapter, costs, failures, figures, floors, judging, machine, scale, servers, subjects, targets, workloads
from .servers import NotHere, Servers

ROUNDS = {"cycle": workloads.cycle, "contend": workloads.contend, "state": workloads.state}
ONCE = {"wait": costs.wait, "renew": costs.renew, "fail": failures.fail, "scale": scale.scale}
FLOORS = "floors"  # of no backend: programs that choose for themselves
WORKLOADS = (*ROUNDS, *ONCE, FLOORS)
ASKED_FOR = ("scale",)  # not among those that are measured where none is named
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Settings:
    rounds: dict  # by workload
    warm_s: float
    compiles: bool  # whether virtual machines have time for that before
    seconds: dict  # of a measurement in one round, by workload
    thread_counts: tuple
    processes: int
    threads: int
    holds_us: tuple
    waiters: tuple
    held: tuple
    kills: int
    long_s: float  # of a contended round that shows shares; 0: none
    scale: dict  # sizes, by curve
    scale_s: float  # how long setting up one size of a curve may take


DECADES = (100, 1000, 10000, 100000, 1000000)
QUICK = Settings(
    {"cycle": 2, "contend": 2, "state": 2}, 0.05, False,
    {"cycle": 0.1, "contend": 0.2, "state": 0.05, "wait": 0.5, "renew": 1, "fail": 3, "scale": 0.3}, (4,), 2, 2, (0,), (5,), (50,), 1, 0.3,
    {"hold": (10, 40), "crowd": (10, 40), "clients": (2, 4), "touch": (20, 80)}, 10,
)  # fmt: skip
FULL = Settings(
    {"cycle": 8, "contend": 5, "state": 5}, 0.25, True,
    {"cycle": 0.25, "contend": 3, "state": 0.1, "wait": 1.5, "renew": 3, "fail": 9, "scale": 3}, (8, 64), 8, 8, (0, 1000), (10, 100),
    (1000,), 5, 10,
    {"hold": DECADES[:5], "crowd": DECADES[:4], "clients": (10, 30, 100, 300, 1000, 2000), "touch": DECADES[:5]}, 20,
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
    ttl_ms: int = 5000  # of what is held for long: no more than subjects.url_of() allows
    label: str = "mortise"

    def subjects(self, strict=False, tokenless=False):
        """strict: also the order between processes, hand-over for hand-over. tokenless: also without tokens, where a rival has none."""
        url = self.url or subjects.url_of(self.backend, self.ports, self.folder)
        found = [subjects.mortise(url, label=self.label)]
        if strict and (not self.url or "://" in url):
            label = f"{self.label}, handover_max = 0"
            found.append(subjects.mortise(subjects.with_setting(url, "handover_max=0"), "mortise_strict", label))
        if tokenless and not self.url and self.backend == "redis":
            label = f"{self.label}, fencing = off"
            found.append(subjects.mortise(subjects.with_setting(url, "fencing=off"), targets.TOKENLESS, label, frozenset({"turns", "threads"})))
        if self.backend in subjects.KINDS and (self.ports or self.backend == "sqlite"):
            found += subjects.floors(self.backend, self.ports, self.folder)
            if self.with_rivals:
                found += subjects.rivals(self.backend, self.ports, self.folder)
        return found

    def rivaled(self):
        """Whether there are rivals that it has to be measured beside."""
        return self.with_rivals and bool(subjects.known_rivals(self.backend))


def config_context(where, **words):
    """A config or URL of the user's: beside floors and rivals where it is plainly a server on this machine."""
    scheme, _, rest = where.partition("://")
    scheme = {"postgresql": "postgres", "mariadb": "mysql"}.get(scheme, scheme)
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
        self.cases, self.left_out, self.described, self.spent_s, self.rivaled = [], [], {}, {}, set()
        self.not_reached = []  # sizes of a curve
        self.floors = []
        self.folder = Path(tempfile.mkdtemp(prefix="mortise-bench-"))
        self.folder.chmod(0o711)
        self.progress = Progress(0)

    # ---- what there is to do ----

    def contexts(self):
        for place, cpus in self.places.items():
            words = {"place": place, "cpus": cpus, "settings": self.settings, "with_rivals": self.with_rivals}
            labels = set()
            for number, where in enumerate(self.configs):
                context = config_context(where, folder=self.folder / f"{place}-config-{number}", **words)
                if context.label in labels:  # the same again, or with other options
                    context.label += f" ({number + 1})"
                labels.add(context.label)
                yield context
            for backend in self.backends:
                yield Context(backend=backend, folder=self.folder / f"{place}-{backend}", **words)

    def workloads_in(self, context):
        """What is counted on the server needs no second place."""
        last = list(self.places)[-1]
        return [name for name in self.wanted if name in ROUNDS or (name in ONCE and context.place == last)]

    def cost_s(self, workload, case):
        """About; of all rounds together."""
        settings, seconds = self.settings, self.settings.seconds[workload]
        if workload in ROUNDS:
            long_s = settings.long_s if workload == "contend" and case.subject.name == "mortise" and not case.hold_us else 0
            one_s = sum(case.lasts_s(seconds)) + case.lead_s() + (0.2 if case.processes > 1 else 0)
            warm_s = sum(case.lasts_s(settings.warm_s)) + (1.2 * case.compile_s() if settings.compiles else 0)
            return settings.rounds[workload] * one_s + warm_s + 0.1 + 0.1 * case.processes + 1.2 * long_s
        if workload == "scale":
            return seconds + 4
        if isinstance(case, failures.Witnessed):
            return max(case.ages_s(settings.kills)) + 3
        if isinstance(case, failures.KilledLongTtl):
            return case.ttl_s() + 10
        if workload == "wait":
            before_s, spell_s = case.spell(seconds)
            return before_s + spell_s * (2 if case.context.backend in ("redis", "redlock") else 1) + 2  # requests: see Monitors
        return 7 if isinstance(case, failures.Killed) else seconds + 2

    def plan(self):
        """The seconds of it all, with ports that are none."""
        total = 0
        for context in self.contexts():
            context.ports = context.ports or (1, 2, 3, 4, 5)
            for name in self.workloads_in(context):
                cases = {**ROUNDS, **ONCE}[name](context)
                total += sum(self.cost_s(name, case) for case in cases)
        if FLOORS in self.wanted:
            total += len(floors.there()) * self.floor_s()
        self.progress.planned_s = total

    def floor_s(self):
        return floors.QUICK_S if self.settings is QUICK else floors.EXPECTED_S

    # ---- doing it ----

    def leave_out(self, what, why):
        self.left_out.append({"what": what, "why": str(why)})
        self.progress.note(f"left out: {what}: {why}")

    def end_before(self, what, why):
        self.not_reached.append({"what": what, "why": str(why)})
        self.progress.note(f"not reached: {what}: {why}")

    def note_rivals(self, context):
        """A rival that is not there does not make the best of the others better unseen."""
        if context.rivaled() and context.backend not in self.rivaled:
            self.rivaled.add(context.backend)
            for label in subjects.absent_rivals(context.backend):
                self.leave_out(f"{context.backend}: {label}", "not installed (bench/rivals/install.sh)")

    def tried(self, case, deed, what):
        """One that fails is left out, and the others go on."""
        try:
            deed()
            return True
        except Exception as error:  # pylint: disable=broad-exception-caught # whatever it is, it is of this case alone
            told = self.end_before if isinstance(error, scale.TooLong) else self.leave_out
            told(what, f"{error}" if str(error) else type(error).__name__)
            with contextlib.suppress(Exception):
                case.close()
            return False

    @staticmethod
    def words_of(case):
        context, label = case.context, case.subject.label_in(case.workload)
        where = context.label if context.url else context.backend
        return figures.words_of(context.place, where, case.workload, case.shape, label)

    def one_round(self, cases, deed, seconds):
        """Each in turn; one that fails is taken out."""
        for case in list(cases):
            what = self.words_of(case)
            self.progress.tell(what)
            if not self.tried(case, lambda case=case: deed(case), what):
                cases.remove(case)
            self.progress.add(seconds(case))

    def in_rounds(self, name, context):
        cases = [case for case in ROUNDS[name](context) if self.tried(case, case.open, self.words_of(case))]
        rounds, seconds = self.settings.rounds[name], self.settings.seconds[name]
        everyone = list(cases)
        try:
            self.one_round(cases, lambda case: case.warm_up(), lambda case: 0)
            for number in range(rounds):
                turn = random.Random(number).sample(cases, len(cases))  # nobody is always behind the same one
                self.one_round(turn, lambda case: case.round(seconds), lambda case: self.cost_s(name, case) / rounds)
                cases = [case for case in cases if case in turn]
            self.one_round(cases, lambda case: case.once(), lambda case: 0)
        finally:
            for case in everyone:
                case.close()
        self.add_results(cases)

    def once(self, name, context):
        cases = ONCE[name](context)
        self.one_round(cases, lambda case: case.round(self.settings.seconds[name]), lambda case: self.cost_s(name, case))
        self.add_results(cases)

    def add_results(self, cases):
        for case in cases:
            self.tried(case, lambda case=case: self.cases.append(case.result()), self.words_of(case))

    def start_servers(self, context):
        kind, settings = subjects.KINDS.get(context.backend, (None, ()))
        context.folder.mkdir(mode=0o711, exist_ok=True)
        if kind is None or context.url:
            return
        context.servers = Servers(kind, context.folder / "servers", context.cpus, settings)
        context.servers.start()
        context.ports = tuple(context.servers.ports())
        self.progress.tell(f"{context.place}, {context.backend}: until its servers count")
        subjects.await_votes(context.backend, context.servers)
        self.described.setdefault(context.backend, context.servers.described())

    def measure(self, context):
        try:
            self.start_servers(context)
            for name in self.workloads_in(context):
                began = time.monotonic()
                (self.in_rounds if name in ROUNDS else self.once)(name, context)
                self.spent_s[f"{context.place}, {context.label if context.url else context.backend}, {name}"] = round(
                    time.monotonic() - began, 1
                )
        except (NotHere, OSError) as error:
            self.leave_out(f"{context.backend}, {context.place}", error)
        finally:
            if context.servers is not None:
                context.servers.end()

    def measure_floors(self):
        """The programs share servers and places with nothing else, so they come last."""
        cpu = min(next((cpus for cpus in self.places.values() if cpus), [0]))
        for name in floors.absent():
            self.leave_out(f"{FLOORS}: {name}", "not in this build (see what cmake says)")
        for name in floors.there():
            self.progress.tell(f"{FLOORS}: {name}")
            began = time.monotonic()
            try:
                self.floors.append(floors.measure(name, self.settings is QUICK, self.folder, cpu))
            except (floors.Failed, NotHere, OSError, ValueError, subprocess.TimeoutExpired) as error:
                self.leave_out(f"{FLOORS}: {name}", error)
            self.spent_s[f"{FLOORS}, {name}"] = round(time.monotonic() - began, 1)
            self.progress.add(self.floor_s())

    def clear_away(self):
        """Whatever runs is ended before its folder goes. Not to be interrupted a second time."""
        before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
        self.progress.end()
        adapter.kill_all()
        servers.end_all()
        shutil.rmtree(self.folder, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)

    def everything(self):
        """The result, as it is written."""
        began = time.monotonic()
        try:
            described = machine.describe()
            self.plan()
            for context in self.contexts():
                self.note_rivals(context)
                self.measure(context)
            if FLOORS in self.wanted:
                self.measure_floors()
        finally:
            self.clear_away()
        result = {
            "format": figures.FORMAT,
            "machine": described,
            "method": {
                "quick": self.settings is QUICK,
                "rounds": self.settings.rounds,
                "kills": self.settings.kills,
                "seconds": self.settings.seconds,
                "warm_up_s": self.settings.warm_s,
                "compiles": self.settings.compiles,
                "rivals": sorted(self.rivaled),
                "places": {name: sorted(cpus) if cpus else "not pinned" for name, cpus in self.places.items()},
                "took_s": round(time.monotonic() - began),
                "spent_s": self.spent_s,
            },
            "servers": self.described,
            "left_out": self.left_out,
            "not_reached": self.not_reached,
            "cases": self.cases,
            "floors": self.floors,
        }
        return judging.judge(result)
