#!/usr/bin/env python3
"""What the replay reaches: the states and events of a claim (core/lock/claim.h), and the lines of the core and of the drivers.

Events are counted more coarsely than that table has them. An answer to `ask` is OK, BUSY or LOST, INDETERMINATE, or "other": no
answer, or a refusal. One to `end` is OK, LOST, or "other".

    coverage.py --work FOLDER [--driver NAME …] [--seeds A-B] [--jobs N] [--lines FILE …]

The core and the drivers are built in FOLDER as planted.py does it, with --coverage in place of the points at atomic
operations, and with calls that count each event of a claim (tests/replay/cells.c). Then the seeds run with each driver. It
prints one line for each state and event: how often, and where the claim went; then the cells that no run reached; then
each file with the share of its lines that ran. --lines prints the lines of these files that did not.

Environment: MORTISE_SOURCE_DIR, MORTISE_BUILD_DIR. Exit code 0: all runs were well; 1: a run failed."""
import argparse
import collections
import os
import re
import subprocess
import sys

from planted import SOURCE, Tree

EVENTS = ["a call", "ask: OK", "ask: BUSY, LOST", "ask: INDETERMINATE", "ask: other", "end: OK", "end: LOST",
          "end: other", "timer"]
# As the table has it: no such request is out, or no timer runs.
IMPOSSIBLE = {"PAUSED": range(1, 8), "ASKING": range(5, 9), "LEAVING": range(5, 9), "HELD": range(5, 8),
              "JOINED": range(1, 9), "LOST": range(5, 9), "ENDING": (), "GONE": range(5, 9)}
ANOTHER = 15  # CELLS_OF_ANOTHER of cells.h

# What is put into the copy: the file, a text that is there once, and what follows it.
KIND = """
extern void replay_meets(const void *, unsigned, unsigned) __attribute__((weak));
extern void replay_goes(const void *, unsigned, unsigned) __attribute__((weak));
static inline void replay_answer(const void *claim, unsigned state, mortise_status status, unsigned first)
{
    unsigned kind = status == MORTISE_OK ? 0
                    : status == MORTISE_BUSY || status == MORTISE_LOST || status == MORTISE_NOTOWNER ? 1
                    : first == 5 || status == MORTISE_INDETERMINATE ? 2 : 3;
    replay_meets(claim, state, first + kind);
}
"""
PROBES = [
    ("core/lock/claim.h", "extern struct slab claim_slab;\n", KIND),
    ("core/lock/claim.c", "    assert(may_go(claim->state, state));\n", "    replay_goes(claim, claim->state, state);\n"),
    ("core/lock/answers.c", "    claim->ask_out = false;\n",
     "    replay_answer(claim, claim->state, answer.status, 1);\n"),
    ("core/lock/answers.c", "    give_room_locked(locks, room);\n    locks_ended", None),
    ("core/lock/held.c", "    claim->ask_out = false;\n", "    replay_answer(claim, claim->state, op->status, 1);\n"),
    ("core/lock/held.c", "        renewal_failed_locked(claim, op, doubted);\n", "    replay_meets(NULL, 0, 0);\n"),
    ("core/lock/ending.c", "    claim->end_out = false;\n", "    replay_answer(claim, claim->state, op->status, 5);\n"),
    ("core/lock/ending.c", "    released_locked(claim, op);\n", "    replay_meets(NULL, 0, 0);\n"),
    ("core/lock/watchdog.c", "    if (timer->kind == TIMER_CLAIM)\n", """    {
        replay_meets(claim_of(timer), claim_of(timer)->state, 8);
        serve_claim_locked(claim_of(timer), now);
        replay_meets(NULL, 0, 0);
    } else if (0)
"""),
]


class Counted(Tree):
    """A copy of the core that counts."""

    def copy(self):
        super().copy()
        for name, after, text in PROBES:
            path = os.path.join(self.folder, name)
            with open(path, encoding="utf-8") as file:
                source = file.read()
            if source.count(after) != 1:
                sys.exit(f"coverage.py: {name} does not have once: {after!r}")
            place = after if text is not None else after.split("\n", maxsplit=1)[0] + "\n"
            source = source.replace(place, place + (text or "    replay_meets(NULL, 0, 0);\n"))
            with open(path, "w", encoding="utf-8") as file:
                file.write(source)

    def lines(self, part, path):
        """The lines that ran, of how many; and those that did not."""
        where = os.path.dirname(self.object_of(part, path))
        run = subprocess.run(["gcov", "-t", "-o", self.object_of(part, path), os.path.join(self.folder, path)], cwd=where,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, text=True)
        text = run.stdout.split("0:Source:")[1] if "0:Source:" in run.stdout else ""
        found = re.findall(r"^ *(#####|=====|\d+\*?): *(\d+):(.*)$", text, re.M)
        missed = [f"{number}:{line}" for count, number, line in found if not count[0].isdigit()]
        return len(found) - len(missed), len(found), missed


def states():
    with open(os.path.join(SOURCE, "core", "lock", "claim.h"), encoding="utf-8") as file:
        return re.findall(r"CLAIM_(\w+)", re.search(r"enum claim_state \{(.*?)\}", file.read(), re.S)[1])


def print_cells(met, went):
    names = states()
    never = []
    for number, state in enumerate(names):
        for event, text in enumerate(EVENTS):
            ways = ", ".join(f"{names[to]} {count}" for (a, b, to), count in sorted(went.items())
                             if (a, b) == (number, event))
            if met[number, event] or ways:
                print(f"{state:8} {text:16} {met[number, event] or '':>9}  {ways}")
            elif event > 0 and event not in IMPOSSIBLE[state]:
                never.append(f"{state}, {text}")
        ways = ", ".join(f"{names[to]} {count}" for (a, b, to), count in sorted(went.items()) if (a, b) == (number, ANOTHER))
        if ways:
            print(f"{state:8} {'of another claim':26}  {ways}")
    print("never, though it is possible: " + ("; ".join(never) or "-"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--driver", nargs="*", default=["sim"])
    parser.add_argument("--seeds", default="1-2000")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--lines", nargs="*", default=[])
    settings = parser.parse_args()
    parts = ["core", *sorted({driver.split("-")[0] for driver in settings.driver})]
    tree = Counted(os.path.realpath(settings.work), parts, ("-O0", "--coverage"), ("--coverage",))
    tree.build()
    met, went, sound = collections.Counter(), collections.Counter(), True
    for driver in settings.driver:
        code, output = tree.replay(driver, "--seeds", settings.seeds, "--jobs", settings.jobs, "--cells")
        sound &= code == 0
        print(f"{driver}: " + output.strip().split("\n")[-1] + (output[:2000] if code else ""))
        for state, event, count in re.findall(r"^met (\d+) (\d+) (\d+)$", output, re.M):
            met[int(state), int(event)] += int(count)
        for state, event, to, count in re.findall(r"^went (\d+) (\d+) (\d+) (\d+)$", output, re.M):
            went[int(state), int(event), int(to)] += int(count)
    print_cells(met, went)
    for part in parts:
        for path in sorted(tree.commands[part]):
            ran, of, missed = tree.lines(part, path)
            print(f"{path}: {ran} of {of} lines")
            if path in settings.lines:
                print("\n".join(missed))
    return sound


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
