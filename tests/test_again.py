#!/usr/bin/env python3
"""again.py with a ctest of its own: a test that fails beside others passes alone; a test that shows a defect never runs again."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run_again(folder, tests):
    """tests: {name: shell script}. Returns the exit code and the output of again.py behind a first run."""
    with open(f"{folder}/CTestTestfile.cmake", "w", encoding="utf-8") as file:
        for name, script in tests.items():
            with open(f"{folder}/{name}.sh", "w", encoding="utf-8") as body:
                body.write(script)
            file.write(f'add_test({name} "sh" "{folder}/{name}.sh")\nset_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)\n')
    ctest, report, log = ["ctest", "--test-dir", folder], f"{folder}/report.xml", f"{folder}/ctest.log"
    subprocess.run([*ctest, "--output-junit", report, "--output-log", log], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    done = subprocess.run([sys.executable, f"{HERE}/again.py", report, log, *ctest], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def once(folder, name, text="", end="exit 1"):
    """A script that prints text and fails the first time, and passes from then on."""
    return f"[ -f {folder}/{name}.ran ] && exit 0; : >{folder}/{name}.ran; echo '{text}'; {end}\n"


def failing(texts):
    """A test for each text, in one run: what is printed tells them apart."""
    return {f"once{i}": lambda folder, name, text=text: once(folder, name, text) for i, text in enumerate(texts)}


def check(what, tests, code, *lines):
    with tempfile.TemporaryDirectory() as folder:
        made = {name: script(folder, name) if callable(script) else script for name, script in tests.items()}
        got, output = run_again(folder, made)
        missing = [line for line in lines if line not in output.splitlines()]
        if got != code or missing:
            sys.exit(f"{what}: exit code {got}, wanted {code}; missing: {missing}; printed:\n{output}")


FLAKY = "FLAKY {}: it failed beside others and passed alone"
TWICE = "FAILED {}: alone it does not pass either"
DEFECT = "FAILED {}: what it shows is a defect; it does not run again"

check("a test that fails once", {"good": "exit 0", "once": once}, 0, FLAKY.format("once"))
check("a test that always fails", {"bad": "exit 1", "once": once}, 1, TWICE.format("bad"), FLAKY.format("once"))
DEFECTS = ("FINDING: a: overlap=1", "==1==ERROR: AddressSanitizer: heap-use-after-free", "WARNING: ThreadSanitizer: data race",
           "ERROR: LeakSanitizer: detected memory leaks", "a.c:3:5: runtime error: signed integer overflow",
           "process 17 died by SIGBUS", "fighter 2 ended by itself: exit code -11", "CompletedProcess(args=[], returncode=-6)",
           "double free or corruption (out)", "free(): invalid pointer", "*** stack smashing detected ***: terminated",
           "terminate called after throwing an instance of std::logic_error")
for texts in (DEFECTS[::2], DEFECTS[1::2]):  # few enough to run again
    # the plain one: what one test prints is not taken for another one's
    check("what shows a defect", {**failing(texts), "plain": once}, 1, FLAKY.format("plain"),
          *(DEFECT.format(f"once{i}") for i in range(len(texts))))
check("a seed", {"fresh": "[ \"$MORTISE_A_SEED\" = 1,23 ] && exit 0; echo MORTISE_A_SEED=1,23; exit 1"}, 0, FLAKY.format("fresh"))
check("a skip at the second try", {"gone": lambda folder, name: once(folder, name).replace("exit 0", "exit 77")}, 1,
      TWICE.format("gone"))
KILLED = ("process 17 has gone: exit code -9", "exit code -15", "exit code 11", "returncode=-9", "returncode=1")
check("what shows none", failing(KILLED), 0, *(FLAKY.format(f"once{i}") for i in range(len(KILLED))))
check("a crash", {"crash": lambda folder, name: once(folder, name, end="kill -SEGV $$")}, 1, DEFECT.format("crash"))
check("an abort", {"abort": lambda folder, name: once(folder, name, end="kill -ABRT $$")}, 1, DEFECT.format("abort"))
check("too many", {f"once{i}": once for i in range(9)}, 1, "FAILED: 9 tests; none of them runs again")
with tempfile.TemporaryDirectory() as empty:
    assert run_again(empty, {"good": "exit 0"})[0] == 1, "a run without a failed test cannot have failed for one"
    no_report = subprocess.run([sys.executable, f"{HERE}/again.py", f"{empty}/none.xml", f"{empty}/none.log", "ctest"], capture_output=True,
                               check=False)
    assert no_report.returncode == 2, no_report
