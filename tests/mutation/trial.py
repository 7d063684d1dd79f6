"""A copy of the tree in which a mutant is built and tested."""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import namedtuple

BUILD_S, ADDRESS_BUILD_S = 900, 1800
FIRST = 8   # so many tests are built and run before the others are built
AT_ONCE = 4  # of the tests, which mostly wait
SKIPPED = 77
CPU_S = 120  # of a processor, for each process of a test: more is a loop without an end, however busy the machine is
MARK = "MORTISE_MUTANTS_COPY"  # in the environment of every test: what it leaves behind is found by it

Test = namedtuple("Test", "name command folder environment")
Failure = namedtuple("Failure", "test hung output")


class Memory:
    """How long each test takes and which mutants it has killed, kept from run to run; the order of the tests comes from it."""

    def __init__(self, file):
        self.file, self.lock, self.seconds, self.kills, self.passed = file, threading.Lock(), {}, {}, set()
        if os.path.exists(file):
            with open(file, encoding="utf-8") as text:
                self.seconds, self.kills = json.load(text)

    def save(self):
        with self.lock, open(self.file, "w", encoding="utf-8") as text:
            json.dump([self.seconds, self.kills], text)

    def took(self, test, seconds):
        with self.lock:
            self.seconds.setdefault(test, seconds)
            self.passed.add(test)

    def killed(self, path, test):
        with self.lock:
            kills = self.kills.setdefault(path, {})
            kills[test] = kills.get(test, 0) + 1

    def in_order(self, path, tests):
        """Those first that find much in little time."""
        stem = os.path.splitext(os.path.basename(path))[0]
        kills = self.kills.get(path, {})

        def worth(test):
            named = stem in re.split(r"[._-]", test)
            return (1 + 10 * named + 10 * kills.get(test, 0)) / (0.3 + self.seconds.get(test, 10))
        return sorted(tests, key=worth, reverse=True)

    def patience(self, test):
        return 20 + 4 * self.seconds.get(test, 15)


def run(command, folder, seconds, environment=None):
    """(exit code, output); the code is -1 after so many seconds."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True, env=environment) as process:
        try:
            output = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return -1, process.communicate()[0]
        return process.returncode, output


class Running:
    """A test that runs in a process group of its own."""

    def __init__(self, test, mark, folder, patience):
        self.test, self.began, self.until = test, time.monotonic(), time.monotonic() + patience
        self.log = tempfile.TemporaryFile("w+", errors="replace")  # pylint: disable=consider-using-with
        environment = dict(test.environment, TMPDIR=folder, **{MARK: mark})
        self.process = subprocess.Popen(["prlimit", f"--cpu={CPU_S}", *test.command], cwd=test.folder, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)

    def failure(self):
        """None while it runs, False if it passed."""
        code, hung = self.process.poll(), time.monotonic() > self.until
        if code is None and not hung:
            return None
        if code in (0, SKIPPED):
            return False
        self.end()
        self.log.seek(0)
        return Failure(self.test.name, code is None, self.log.read()[-4000:])

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def end_leftovers(mark):
    """Servers that a killed test has started."""
    wanted = f"{MARK}={mark}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass  # it has ended, or is somebody else's


class Build:
    """One build of a copy, and its tests."""

    def __init__(self, source, folder, preset, seconds):
        self.source, self.folder, self.seconds = source, folder, seconds
        self.environment = dict(os.environ, CCACHE_NOHASHDIR="1")
        self.environment.setdefault("CCACHE_BASEDIR", source)
        options = ["-DMORTISE_WERROR=OFF", "-DMORTISE_BENCH=OFF", "-DMORTISE_EXAMPLES=OFF",
                   "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON"]
        if preset == "debug":
            options.append("-DCMAKE_C_FLAGS_DEBUG=-O0")
        if shutil.which("ccache"):
            options += ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
        if shutil.which("ld.lld"):
            options += [f"-DCMAKE_{kind}_LINKER_FLAGS=-fuse-ld=lld" for kind in ("EXE", "SHARED", "MODULE")]
        code, output = run(["cmake", "--preset", preset, "-B", folder, "-G", "Ninja", *options], source, seconds,
                           self.environment)
        if code == 0:
            code, output = run(["cmake", "--build", folder], source, seconds, self.environment)
        if code != 0:
            raise RuntimeError(f"the tree itself does not build:\n{output[-3000:]}")
        self.tests = self.read_tests()
        self.always = self.find_always()

    def read_tests(self):
        _, output = run(["ctest", "--test-dir", self.folder, "--show-only=json-v1"], self.source, 60)
        tests = {}
        for entry in json.loads(output[output.index("{"):])["tests"]:
            properties = {item["name"]: item["value"] for item in entry["properties"]}
            environment = dict(os.environ)
            environment.update(item.split("=", 1) for item in properties.get("ENVIRONMENT", []) if item)
            for change in properties.get("ENVIRONMENT_MODIFICATION", []):
                name, how, value = re.fullmatch(r"(\w+)=(\w+):(.*)", change).groups()
                if how == "unset":
                    environment.pop(name, None)
                else:  # path_list_prepend
                    environment[name] = f"{value}:{environment[name]}"
            if "command" in entry:
                tests[entry["name"]] = Test(entry["name"], entry["command"], properties["WORKING_DIRECTORY"], environment)
        return tests

    def find_always(self):
        """What tests load or start, as ninja names it."""
        files = []
        for below in ("lib", "bin", "tests/modules"):
            for folder, _, names in os.walk(f"{self.folder}/{below}"):
                files += [os.path.relpath(f"{folder}/{name}", self.folder) for name in names
                          if not os.path.islink(f"{folder}/{name}")]
        return files

    def names(self, pattern):
        return [name for name in self.tests if re.fullmatch(pattern, name)]

    def make(self, names):
        """Builds what these tests need; the compiler's words if it does not build."""
        programs = {os.path.relpath(self.tests[name].command[0], self.folder) for name in names
                    if self.tests[name].command[0].startswith(self.folder + "/")}
        code, output = run(["ninja", "-C", self.folder, *self.always, *sorted(programs)], self.source, self.seconds,
                           self.environment)
        return None if code == 0 else output


class Copy:
    """The tree, copied; a thread of its own works in it."""

    def __init__(self, root, folder, memory):
        self.root, self.folder, self.memory, self.noise = root, folder, memory, []
        self.temporary = tempfile.mkdtemp(prefix="mortise-mutants-")
        os.chmod(self.temporary, 0o755)  # servers that run as another user
        os.makedirs(folder, exist_ok=True)
        names = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
        names = set(filter(None, names.split("\0")))
        for name in names:
            self.take(name)
        self.drop_others(names)
        self.plain, self.address, self.assembly = None, None, {}

    def take(self, name):
        """Copies what differs, so that nothing is built in vain."""
        source, target = os.path.join(self.root, name), os.path.join(self.folder, name)
        if not os.path.isfile(source):
            return
        with open(source, "rb") as file:
            wanted = file.read()
        if os.path.exists(target):
            with open(target, "rb") as file:
                if file.read() == wanted:
                    return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(source, target)
        os.utime(target)

    def drop_others(self, names):
        """What was left by the last run and is no more in the tree would be built too."""
        for folder, below, files in os.walk(self.folder):
            if folder == self.folder:
                below[:] = [name for name in below if not name.startswith("build")]
            for file in files:
                if os.path.relpath(f"{folder}/{file}", self.folder) not in names:
                    os.unlink(f"{folder}/{file}")

    def put(self, path, lines):
        with open(os.path.join(self.folder, path), "w", encoding="utf-8") as file:
            file.write("\n".join(lines))

    def build(self):
        self.plain = Build(self.folder, f"{self.folder}/build", "debug", BUILD_S)

    def compile(self, path):
        """The optimised assembly of a file, as text, and None if it does not compile."""
        with open(f"{self.plain.folder}/compile_commands.json", encoding="utf-8") as file:
            entry = next(entry for entry in json.load(file) if entry["file"] == os.path.join(self.folder, path))
        words = [word for word in shlex.split(entry["command"]) if os.path.basename(word) != "ccache"]
        words = words[:words.index("-o")] + ["-O2", "-g0", "-w", "-S", "-o", "-", entry["file"]]
        code, output = run(words, entry["directory"], BUILD_S)
        return output if code == 0 else None

    def fails(self, build, names):
        """The first failure that repeats itself when the test runs alone, or None."""
        waiting, running = list(names), []
        try:
            while waiting or running:
                while waiting and len(running) < AT_ONCE:
                    running.append(self.start(build, waiting.pop(0)))
                time.sleep(0.01)
                for one in list(running):
                    failure = one.failure()
                    if failure is None:
                        continue
                    running.remove(one)
                    if not failure:
                        self.memory.took(one.test.name, time.monotonic() - one.began)
                        continue
                    waiting = [other.test.name for other in running] + waiting
                    self.end(running)
                    running = []
                    if again := self.alone(build, failure.test):
                        return again
                    self.noise.append(failure.test)
                    break
        finally:
            self.end(running)
        return None

    def start(self, build, name):
        return Running(build.tests[name], self.folder, self.temporary, self.memory.patience(name))

    def alone(self, build, name):
        one = self.start(build, name)
        while (failure := one.failure()) is None:
            time.sleep(0.01)
        self.end([])
        return failure

    def end(self, running):
        for one in running:
            one.end()
        end_leftovers(self.folder)
        for name in os.listdir(self.temporary):
            shutil.rmtree(f"{self.temporary}/{name}", ignore_errors=True)

    def close(self):
        end_leftovers(self.folder)
        shutil.rmtree(self.temporary, ignore_errors=True)

    def unchanged(self, patterns, only):
        """Runs all tests before any change; a failure, or None."""
        names = {name for pattern in patterns for name in self.plain.names(pattern) if re.fullmatch(only, name)}
        return self.fails(self.plain, sorted(names))

    def stages(self, part, count):
        """(build, tests) of the first stages, in the order in which they are tried."""
        for pattern in part.tests[:count]:
            yield self.plain, self.plain.names(pattern)
        if count > len(part.tests):
            if self.address is None:
                self.address = Build(self.folder, f"{self.folder}/build-address", "asan-ubsan", ADDRESS_BUILD_S)
            yield self.address, self.address.names(part.address)

    def verdict(self, mutant, sources, options):
        """("killed by …", "does not build", "equivalent" or "survived", what was printed)."""
        path = mutant.path
        if path not in self.assembly:
            self.assembly[path] = self.compile(path)
        try:
            self.put(path, sources.changed(mutant))
            assembly = self.compile(path)
            if assembly is None:
                return "does not build", ""
            if assembly == self.assembly[path]:
                return "equivalent", ""
            return self.test(mutant, options)
        finally:
            self.put(path, sources.lines[path])

    def test(self, mutant, options):
        for build, names in self.stages(mutant.part, options.stages):
            names = self.memory.in_order(mutant.path, [name for name in names if re.fullmatch(options.tests, name)])
            for some in filter(None, (names[:FIRST], names[FIRST:])):
                output = build.make(some)
                if output is not None:
                    return "does not build", output
                failure = self.fails(build, some)
                if failure:
                    self.memory.killed(mutant.path, failure.test)
                    where = " under AddressSanitizer" if build is self.address else ""
                    return f"killed by {'a hang of ' if failure.hung else ''}{failure.test}{where}", failure.output
        return "survived", ""
