#!/usr/bin/env python3
"""again.py REPORT LOG COMMAND… - runs the failed tests of a CTest report once more, each alone.

REPORT and LOG are the files that `ctest --output-junit REPORT --output-log LOG` wrote; COMMAND is a ctest command line for
the same build. A machine that stands still for seconds can make a test fail although the product is right. Such a test passes
when it runs again alone: it is printed as FLAKY, and docs/testing.md lists it until it is repaired. One that is skipped then has
not passed. A line
"MORTISE_…_SEED=NUMBER,NUMBER…" of its output is put into its environment, so that it does not try other seeds.

A failure that shows a defect is final, however rare it is: a report of a sanitizer, a crash, also of a process that the test
has started, or a line that begins with "FINDING:", which tests print for two holders, a token out of order or a lost update.

Exits 0 if no failure is left, 1 if one is, 2 if a file cannot be read."""
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

DEFECT = re.compile(r"(?m)^FINDING:|AddressSanitizer|LeakSanitizer|ThreadSanitizer|\bruntime error:"
                    r"|Segmentation fault|SIGSEGV|SIGABRT|Aborted \(core dumped\)|\bAssertion `.*' failed"
                    # of children: what test_reap() and Python say, and what glibc and C++ print before they end a process
                    r"|died by SIG(?:ILL|ABRT|BUS|FPE|SEGV)\b|\b(?:exit code |returncode=)-(?:4|6|7|8|11)\b"
                    r"|\b(?:free|malloc|realloc|munmap_chunk)\(\): |double free or corruption|corrupted (?:size vs|double-linked)"
                    r"|(?:stack smashing|buffer overflow) detected|terminate called")
SEED = re.compile(r"(?m)^(MORTISE_[A-Z]+_SEED)=([0-9,]+)$")
MOST = 8  # that many failures are no bad luck


def failures(report, log):
    """[(name, what CTest says of it, output)]; only the log has CTest's word: Failed, Timeout, SEGFAULT, …"""
    with open(log, encoding="utf-8", errors="replace") as file:
        words = dict(re.findall(r"(?m)^\s+[0-9]+ - (\S+) \((.*)\)$", file.read().rpartition("tests FAILED:")[2]))
    return [(case.get("name"), words.get(case.get("name"), "?"), case.findtext("system-out") or "")
            for case in xml.parse(report).getroot().iter("testcase") if case.find("failure") is not None]


def shows_defect(word, output):
    return word not in ("Failed", "Timeout", "Not Run") or DEFECT.search(output) is not None


def passes_alone(command, name, output):
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.xml"
        options = ["--output-on-failure", "--no-tests=error", "--output-junit", report]
        done = subprocess.run([*command, "-R", f"^{re.escape(name)}$", *options], env=os.environ | dict(SEED.findall(output)), check=False)
        return done.returncode == 0 and xml.parse(report).find(".//skipped") is None


def main():
    if len(sys.argv) < 4:
        print(__doc__)
        return 2
    try:
        failed = failures(*sys.argv[1:3])
    except (OSError, xml.ParseError) as error:
        print(f"again.py: {sys.argv[1]}: {error}")
        return 2
    if not failed:  # ctest failed, and no test did: it had none, or it was ended
        print(f"again.py: {sys.argv[1]} has no failed test")
        return 1
    final = [name for name, word, output in failed if shows_defect(word, output)]
    for name in final:
        print(f"FAILED {name}: what it shows is a defect; it does not run again")
    if len(failed) > MOST:
        print(f"FAILED: {len(failed)} tests; none of them runs again")
        return 1
    left = len(final)
    for name, _, output in failed:
        if name in final:
            continue
        if passes_alone(sys.argv[3:], name, output):
            print(f"FLAKY {name}: it failed beside others and passed alone")
        else:
            print(f"FAILED {name}: alone it does not pass either")
            left += 1
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
