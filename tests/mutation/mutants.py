#!/usr/bin/env python3
"""mutants.py [--count N] [--seed N] [--only ID,…] [--tests REGEX] [--stages N] [--minutes N] [--trust] [--list] [--jobs N]
[--folder FOLDER] [--state FILE] - breaks the code on purpose, one small change at a time, and counts how many of these mutants the tests notice.

A mutant is one change in one line of the core or of a part that drivers share: a comparison is flipped, a call or an
assignment is dropped, a constant is changed, `true` becomes `false`. It is built in a copy of the tree. Then the tests of its
part run (PARTS), those first that are likely to fail and quick, until one fails. The failed test runs again, alone: if it
fails again, the mutant is killed; if not, that was noise, and the other tests go on. A mutant that no test notices survives: a test is missing, or the
change makes no difference. survivors.txt lists those that are known, each with the reason. A mutant whose optimised code is
the same as before is equivalent: it is counted apart, and not tested.

Not tried: lines that write a log or print to stderr, asserts, sizes of text buffers, code that wipes a secret, and calls of
free and of pthread functions. A test can hardly notice these; the sanitizers notice some of them.

--count   how many mutants (200). The seed selects them; an edited line exchanges the mutants of that line only
--seed    of the selection (1)
--only    these mutants, by the IDs that a run printed
--tests   only the tests whose whole name matches
--stages  only the first stages of tests: 1 is quick, and its survivors are worth a look
--minutes begins no further mutant after this time; the first one is another each day
--trust   the unchanged tree is known to pass; without this it is tested first
--list    prints the mutants and runs none
--jobs    how many at a time, each in its own copy of the tree (one for each processor)
--folder  where the copies and their builds are kept (build-mutants beside the sources), so that the next run is faster
--state   a file with the verdicts of earlier runs, one a line: these mutants are not tried again (but with --only), and count
          in the score. Each verdict is added at once, so that a run that was ended goes on where it was

Prints a line for each mutant, the change of each that survives, and the score. Exits 0 if every survivor is in survivors.txt,
1 if not, 2 if the tree does not pass before any change."""
import argparse
import collections
import datetime
import os
import queue
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
from changes import Sources  # noqa: E402
from trial import Copy, Memory  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# Which sources; the tests that should notice a change in them, in stages, the cheap ones first; the tests that run at last
# under AddressSanitizer and UndefinedBehaviorSanitizer.
Part = collections.namedtuple("Part", "files tests address")
UNIT = r"(unit|cxx|fuzz)\..*"
PARTS = [
    Part("core/*/*.c", (UNIT, r"conformance\.(sim|sqlite)", r"conformance\.sim-queue|torture\.sqlite|redis\.connect"
                            r"|command\.(bad_input|trust|migrate_run|operators|run_env|run_exit_codes)"), UNIT),
    Part("drivers/lib/sql/*.c", (UNIT, r"conformance\.(sqlite|postgres)", r"faults\.postgres_rows|torture\.sqlite"), UNIT),
    Part("drivers/lib/redis/*.c", (r"unit\.redis_.*|redis\.(?!sentinel|replicas|lost).*",
                                   r"redis\.(sentinel|replicas|lost)|conformance\.(redis|redlock)|hostile\.red.*",
                                   r"redlock\.(nodes|votes|renewals)|torture\.redis"), r"unit\.redis_.*|redis\..*|hostile\.red.*"),
]
LEFT_OUT = {"core/client/acquire.c"}  # every function of it calls one of the core


def known_survivors():
    with open(f"{HERE}/survivors.txt", encoding="utf-8") as file:
        return {line.split()[0] for line in file if line.strip() and not line.startswith("#")}


def commit():
    done = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"


class Round:
    """All mutants that were chosen, and the copies that work on them."""

    def __init__(self, options, sources, chosen):
        self.options, self.sources, self.chosen = options, sources, chosen
        self.known, self.verdicts, self.survivors = known_survivors(), collections.Counter(), []
        os.makedirs(options.folder, exist_ok=True)
        self.memory = Memory(f"{options.folder}/memory.json")
        self.copies = [Copy(ROOT, f"{options.folder}/{number + 1}", self.memory) for number in range(options.jobs)]
        self.commit, self.until = commit(), float("inf")
        self.work, self.printing, self.trouble = queue.SimpleQueue(), threading.Lock(), None
        earlier = self.read_state()
        for mutant in self.in_turn():
            if mutant.id in earlier:
                self.count(mutant, earlier[mutant.id].split()[0])
            else:
                self.work.put(mutant)

    def read_state(self):
        """{id: verdict} of earlier runs; the last word counts."""
        if self.options.only or not self.options.state or not os.path.exists(self.options.state):
            return {}
        with open(self.options.state, encoding="utf-8") as file:
            return dict(line.rstrip("\n").split(" ", 1) for line in file if " " in line)

    def write_state(self, mutant, verdict):
        if self.options.state:
            with open(self.options.state, "a", encoding="utf-8") as file:
                file.write(f"{mutant.id} {verdict} ({self.commit})\n")

    def count(self, mutant, kind):
        self.verdicts[kind] += 1
        if kind == "survived" and mutant.id not in self.known:
            self.survivors.append(mutant)

    def in_turn(self):
        """If there may be no time for all: in an order of chance, which begins elsewhere each day."""
        if not self.options.minutes:
            return self.chosen
        mutants = sorted(self.chosen, key=lambda mutant: mutant.id)
        first = datetime.date.today().toordinal() * 61 % len(mutants)
        return mutants[first:] + mutants[:first]

    def passes_unchanged(self):
        if self.options.trust:
            return True
        parts = {mutant.part for mutant in self.chosen}
        failure = self.copies[0].unchanged(sorted({pattern for part in parts for pattern in part.tests[:self.options.stages]}), self.options.tests)
        if failure:
            print(f"the tree itself: {failure.test} fails\n{failure.output}")
        return not failure

    def try_one(self, copy, mutant):
        began = time.monotonic()
        verdict, output = copy.verdict(mutant, self.sources, self.options)
        kind = verdict.split()[0]
        with self.printing:
            self.count(mutant, kind)
            self.write_state(mutant, verdict)
            known = " (known)" if kind == "survived" and mutant.id in self.known else ""
            print(f"{mutant.id} {mutant.path}:{mutant.number + 1}: {mutant.what}: {verdict}{known} "
                  f"({time.monotonic() - began:.0f} s)", flush=True)
            if self.options.only or kind == "survived" and not known:
                print(self.sources.diff(mutant), flush=True)
            if self.options.only:
                print(output)
        self.memory.save()

    def work_in(self, copy):
        try:
            while self.trouble is None and time.monotonic() < self.until:
                self.try_one(copy, self.work.get_nowait())
        except queue.Empty:
            pass
        except Exception as trouble:  # pylint: disable=broad-except
            self.trouble = trouble

    def go(self):
        """The exit code."""
        for copy in self.copies:  # one after the other: the second finds its objects in the compiler's cache
            copy.build()
        if not self.passes_unchanged():
            return 2
        if self.options.minutes:
            self.until = time.monotonic() + 60 * self.options.minutes
        threads = [threading.Thread(target=self.work_in, args=(copy,)) for copy in self.copies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.trouble:
            raise self.trouble
        return self.score()

    def score(self):
        killed, survived = self.verdicts["killed"], self.verdicts["survived"]
        for mutant in self.survivors:
            print(f"SURVIVED {mutant.id} {mutant.path}:{mutant.number + 1}: {mutant.what}")
        noise = collections.Counter(test for copy in self.copies for test in copy.noise)
        for test, times in noise.most_common():
            print(f"noise: {test} failed {times} times and passed alone")
        if doubtful := {test for kills in self.memory.kills.values() for test in kills} - self.memory.passed:
            print(f"these tests killed mutants, and never passed: {' '.join(sorted(doubtful))}")
        print(f"\n{killed} of {killed + survived} mutants killed ({100 * killed // max(killed + survived, 1)} %); {survived} "
              f"survived, {len(self.survivors)} of them unknown; {self.verdicts['equivalent']} more are equivalent, "
              f"{self.verdicts['does']} do not build; there was no time for {len(self.chosen) - sum(self.verdicts.values())}. "
              f"Seed {self.options.seed}, {self.commit}.")
        return 1 if self.survivors else 0

    def close(self):
        for copy in self.copies:
            copy.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--tests", default=".*")
    parser.add_argument("--stages", type=int, default=9)
    parser.add_argument("--minutes", type=int, default=0)
    parser.add_argument("--trust", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--state")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--folder", default=f"{ROOT}/build-mutants")
    options = parser.parse_args()
    sources = Sources(ROOT, PARTS, LEFT_OUT)
    chosen = sources.choose(options.count, options.seed)
    if options.only:
        chosen = [mutant for mutant in sources.mutants if mutant.id in options.only.split(",")]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.id} {mutant.path}:{mutant.number + 1}: {mutant.what}")
        print(f"{len(chosen)} of {len(sources.mutants)} mutants")
        return 0
    options.jobs = max(1, min(options.jobs, len(chosen)))
    options.folder = os.path.abspath(options.folder)
    started = Round(options, sources, chosen)

    def end(*_):  # no test and no server is left
        started.close()
        os._exit(1)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        return started.go()
    finally:
        started.close()


if __name__ == "__main__":
    sys.exit(main())
