#!/usr/bin/env python3
"""A torture run: it starts a server, processes that contend for a few names (torture.c) and a fault proxy for each of
them; causes the faults of a plan that one seed determines, and counts them by kind; repairs everything and ends it
cleanly. Then the checker (check.c) verifies from the histories that no promise was broken, or finds that one was.

    nemesis.py NAME CONFIG [KEY=VALUE …]

CONFIG is a template, in which @DIR@, @HOST@, the @PORT…@s and @SEED@ are replaced; the ports are the proxies'. KEYs:
    server=KIND         a kind of tests/servers.sh, with the KEY=VALUEs in $MORTISE_SERVER; empty: no server
    members=N           the number of servers of a group. A fault of servers, or of connections to them, hits `of` them:
                        minority, majority, any
    clock=N             how fast the server's clock runs: 1.5 (with libfaketime, so not with ZooKeeper)
    left=KIND           the hooks that report what was left in the server; list: only the driver's list
    faults=WORD,WORD…   the kinds of faults (see plan.py); a word given twice is twice as frequent; none
    each=WORD,WORD…     kinds of faults that the plan of a fresh seed has (of a group also majority-down, minority-down). Fixed
                        seeds are chosen so, too: test_parts.py
    seconds=N           how long there are faults, rate=N of them a second, each for up to `longest` times the ttl (2.5);
                        the `first` comes after 0.2 seconds
    calm=N              for how many seconds the run goes on without faults (2, at night 4), with the ttl calm_ttl=MS
                        (20000), so that no claim expires. Then nobody may wait longer than patience=MS (8000), or fail
                        after that time. The default is less than the time after which a SQL driver polls (10000), and
                        five times the longest wait on a machine that was far too busy
    processes=N threads=N clients=N names=N ttl=MS long=N hold=MS pause=MS         of the fighters
    modes=N             of the fighters too: 1: most leases are shared, 2: and each third name has permits
    wall=FILE           clock.c, loaded into the fighters: the fault "clock" sets the time of day that one of them sees
    python=N            so many of the processes are $MORTISE_TORTURE_PYTHON, a command: bindings/python/tests/fighter.py
    phases=WORD,WORD…   @PHASE@ of the fighters, in turn; step=1: run `mortise migrate advance` once before they start, with
                        the config of the first
    observe=MODULE      the observer that writes the history: recorder, which loses nothing if a process is killed, or trace
    witness=1           a witness runs, and may be broken, too; or witness=PATH, another program. unit=MS: how long faults last
                        is in this, not in ttls
    namespaces=1        every second fighter is in a pid namespace of its own, if this system allows that
    seed=N              the seed of the plan; without it a fresh one. It is printed. fresh=N: then N runs with fresh ones
    find=KIND,KIND…     the checker must find the first of these violations, and may find the others, in one of up to
                        `tries` runs
    tries=N deaf=1      deaf: when a fault hits a server, a holder receives nothing for a ttl; and a fault that must hit a
                        holder waits for one
    load=1              many clients, and no faults: nothing may be lost or fail. After the first `settled` seconds (10) and
                        `warm` acquisitions (0) nobody may wait longer than patience, and neither memory nor descriptors
                        may grow, except leak=N bytes for each acquisition (8). No proxies

Environment: MORTISE_TORTURE, MORTISE_CHECK, MORTISE_PROXY, MORTISE_COMMAND, MORTISE_SOURCE_DIR. If they are set,
$MORTISE_TORTURE_SECONDS is the length of a run, $MORTISE_TORTURE_SEED the only seeds (those that failed are printed for
tests/again.py: "MORTISE_TORTURE_SEED=1,23"), and $MORTISE_TORTURE_SEEDS the number of fresh seeds after the given one; with
MORTISE_NIGHTLY=1 twelve seconds (a load: half a minute or one) and four. In each row at least one fault must have occurred; if all
runs of a row together last for five minutes at night, each kind, and at least one fault in twenty seconds; report.py looks at all
rows of a shorter night. MORTISE_TORTURE_KEEP=1 keeps the histories. The counts of faults are added to
$MORTISE_TORTURE_REPORT/NAME, which report.py sums up.
Exit code 0: all is well; 1: not, and the directory with the histories is kept and printed; 77: no server."""
import os
import random
import re
import signal
import sys

from arena import Failure, Finding, can_enclose, tell
from campaign import Run
from plan import FAULTS, Plan

EVERY_S = 20  # at night at least one fault in this time; there are few if a server starts slowly
LONG_S = 300  # long enough for each kind of fault
SEEDS_TRIED = 5000  # one in some hundred has the plan that is wanted; of a run that is too short, none
VIOLATIONS = "overlap permits outlived order starved leftover unbalanced lost-update garbled".split()


def too_long(_signal, _frame):
    raise Failure("it does not end")


# The violations that a busy machine cannot cause: never a reason to run once more (tests/again.py).
# What a server that is broken on purpose leaves is its own affair.
UNSAFE = {"overlap", "permits", "outlived", "order", "leftover", "unbalanced", "lost-update"}


def run_once(name, template, settings, seed, seen=None):
    """Returns the violations that were found, with their numbers; None if the run did not end, or its server did not. Adds
    the faults to `seen`."""
    tell(f"{name}: seed={seed}")
    run, found = Run(name, template, settings, seed), None
    good = False
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(int(3 * settings["seconds"]) + 600)
    try:
        numbers, details = run.go()
        found = {word: int(numbers[word]) for word in VIOLATIONS if numbers[word] != "0"}
        good = set(found) <= set(settings["find"])
        run.report(numbers)
        if found:
            tell(details)
        excused = {"leftover", *settings["find"]} if settings["find"] else set()
        if unsafe := sorted(set(found) & UNSAFE - excused):
            tell(f"FINDING: {name}: seed={seed}: {', '.join(unsafe)}")
        if int(numbers["holds"]) < 10:
            tell("  so few holds prove nothing")
            good, found = False, None
    except Failure as failure:
        tell(f"  failed: {failure}")
        if isinstance(failure, Finding):
            tell(f"FINDING: {name}: seed={seed}: {failure}")
    finally:
        signal.alarm(0)
        if seen:
            seen.add(run.strikes)
        if not run.end(keep=not good or os.environ.get("MORTISE_TORTURE_KEEP") == "1"):
            found = None
    return found


def number_of(text):
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    return float(text) if re.fullmatch(r"[0-9]+\.[0-9]+", text) else text


def read_settings(arguments):
    settings = {"server": "", "members": 1, "of": "any", "clock": 0, "left": "", "faults": "kill,stop",
                "each": "", "seconds": 8, "rate": 3, "processes": 4, "python": 0, "threads": 3, "clients": 1, "names": 3,
                "ttl": 1000, "calm_ttl": 20000, "seed": "", "fresh": 0, "find": "", "tries": 1, "deaf": 0, "calm": 2, "patience": 8000,
                "observe": "recorder", "wall": "", "phases": "", "step": 0, "witness": 0, "unit": 0, "namespaces": 0,
                "first": 0.2, "longest": 2.5, "long": 60, "hold": 0, "pause": 0, "modes": 0, "load": 0, "settled": 10, "warm": 0, "leak": 8}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key not in settings:
            sys.exit(f"nemesis.py: what is \"{argument}\"?")
        settings[key] = number_of(value)
    settings["plain"], settings["proxies"] = settings["load"], not settings["load"]
    settings["find"] = settings["find"].split(",") if settings["find"] else []
    settings["each"] = settings["each"].split(",") if settings["each"] else []
    settings["phases"] = settings["phases"].split(",")
    settings["faults"] = [] if settings["faults"] == "none" else settings["faults"].split(",")
    if settings["namespaces"] and not can_enclose():
        tell("left out: pid namespaces: this system does not allow them")
        settings["namespaces"] = 0
    if not set(settings["faults"]) <= set(FAULTS):
        sys.exit(f"nemesis.py: unknown faults: {set(settings['faults']) - set(FAULTS)}")
    return settings


def lacks(seed, settings):
    """What its plan has not, of the kinds that it should have."""
    return set(settings["each"]) - Plan(seed, settings, settings["processes"]).kinds()


def fresh_seed(settings):
    for _ in range(SEEDS_TRIED):
        seed = random.SystemRandom().randrange(1, 1_000_000)
        if not lacks(seed, settings):
            break
    return seed


def find_it(name, template, settings):
    wanted = settings["find"][0]
    for attempt in range(settings["tries"]):
        found = run_once(name, template, settings, settings["seed"] + attempt)
        if found is None or set(found) - set(settings["find"]):
            return False
        if wanted in found:
            tell(f"{name}: {wanted} was found, as it must be")
            return True
    tell(f"{name}: {wanted} was not found: is the checker blind?")
    return False


class Seen:
    """The faults of all runs of a row."""

    def __init__(self):
        self.kinds, self.number = set(), 0

    def add(self, strikes):
        self.kinds |= strikes.kinds
        self.number += sum(strikes.counts.values())

    def is_enough(self, settings, runs, at_night):
        if not settings["faults"]:
            return True
        if self.number == 0:
            tell("  not one fault")
            return False
        if not at_night or settings["seconds"] * runs < LONG_S:
            return True  # a short run need not have all faults
        missing, wanted = set(settings["faults"]) - self.kinds, settings["seconds"] * runs / EVERY_S
        if missing or self.number < wanted:
            tell(f"  only {self.number} faults; of these none: {', '.join(missing)}")
        return not missing and self.number >= wanted


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    name, settings = sys.argv[1], read_settings(sys.argv[3:])
    with open(sys.argv[2], encoding="utf-8") as file:
        template = file.read()
    given = os.environ.get("MORTISE_TORTURE_SEED")
    seeds = [int(seed) for seed in given.split(",")] if given else []
    if settings["find"]:
        settings["seed"] = seeds[0] if seeds else settings["seed"] or fresh_seed(settings)
        return find_it(name, template, settings)
    usual, seen = (settings["seconds"], settings["fresh"]), Seen()
    at_night = os.environ.get("MORTISE_NIGHTLY") == "1"
    if at_night:
        usual = max(30, settings["seconds"]) if settings["load"] else 12, 4
        if not settings["load"]:
            settings["calm"] = 4
    settings["seconds"] = float(os.environ.get("MORTISE_TORTURE_SECONDS", usual[0]))
    fresh = 0 if settings["load"] or given else int(os.environ.get("MORTISE_TORTURE_SEEDS", usual[1]))
    if not seeds:
        seeds = [settings["seed"] or fresh_seed(settings)]
    seeds += [fresh_seed(settings) for _ in range(fresh)]
    # Try every seed, whatever the one before has found.
    bad = [seed for seed in seeds if run_once(name, template, settings, seed, seen) != {}]
    if bad:
        tell(f"MORTISE_TORTURE_SEED={','.join(map(str, bad))}")
    return not bad and seen.is_enough(settings, len(seeds), at_night)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
