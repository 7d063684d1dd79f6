"""The package as a newcomer meets it: the wheel, ten lines, the command beside it; the sdist; how long the import takes."""
import glob
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import SOURCE

import mortise

C_LIBRARY = r"lib(c|m|dl|rt|pthread|gcc_s)\.so\.\d+|ld-linux[a-z0-9_-]*\.so\.\d+"
OF_THE_SYSTEM = {"libpq": "libpq", "libmariadb": "libmariadb", "libnghttp2": "libnghttp2", "libssl": "OpenSSL 3",
                 "libcrypto": "OpenSSL 3"}
VENV = pathlib.Path(sys.prefix)
DIST = VENV.parent / "dist"


def command(*words, **keywords):
    return subprocess.run([VENV / "bin/mortise", *words], capture_output=True, text=True, check=False, **keywords)


def test_it_is_the_wheel():
    assert pathlib.Path(mortise.__file__).is_relative_to(VENV)
    with open("/proc/self/maps", encoding="ascii") as file:
        loaded = {line.split()[-1] for line in file if "libmortise" in line}
    assert [pathlib.Path(path).is_relative_to(VENV) for path in loaded] == [True]


def blocks(page, language):
    text = (SOURCE / page).read_text(encoding="utf-8")
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text)


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_ten_lines(tmp_path, page):
    """The first program of the page, as it is printed there; then the command shows what it does."""
    config = tmp_path / "mortise.conf"
    config.write_text(f"[mortise]\ndriver = sqlite\n[sqlite]\npath = {tmp_path}/locks.db\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MORTISE_")}
    environment["MORTISE_CONFIG"] = str(config)
    program = blocks(page, "python")[0]
    assert program.count("\n") <= 12
    done = subprocess.run([VENV / "bin/python", "-c", program], capture_output=True, text=True, env=environment,
                          cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "") and re.fullmatch(r"working, token \d+\n", done.stdout)
    assert command("list", env=environment).stdout == ""
    with mortise.open(config) as client, client.lock("nightly"):
        assert "nightly" in command("list", env=environment).stdout
        assert command("run", "-n", "nightly", "--", "true", env=environment).returncode == 75
    assert command("run", "nightly", "--", "sh", "-c", "exit 3", env=environment).returncode == 3
    assert "sqlite" in command("drivers", env=environment).stdout


def test_states(tmp_path):
    [program] = blocks("docs/states.md", "python")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MORTISE_")}
    environment["MORTISE_CONFIG"] = f"sqlite:{tmp_path}/locks.db"
    done = subprocess.run([VENV / "bin/python", "-W", "error", "-c", program], capture_output=True, text=True, env=environment,
                          check=False)
    assert (done.returncode, done.stderr) == (0, "") and re.fullmatch(r"(step \d token \d+\n){3}", done.stdout)


@pytest.mark.parametrize("name, printed", [("nightly", r"working, token \d+"), ("crowd", "1000 tasks; four at a time"),
                                           ("counter", "200 of 200")])
def test_examples(tmp_path, name, printed):
    more = [tmp_path / "number"] if name == "counter" else []
    done = subprocess.run([VENV / "bin/python", "-W", "error", SOURCE / f"examples/python/{name}.py",
                           f"sqlite:{tmp_path}/locks.db", *more], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and re.fullmatch(printed + "\n", done.stdout)


def test_an_example_that_fails(tmp_path):
    done = subprocess.run([VENV / "bin/python", SOURCE / "examples/python/counter.py", f"sqlite:{tmp_path}/none/locks.db",
                           tmp_path / "number"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "0 of 200\n")


def test_the_command_is_the_wheels():
    assert command("--version").stdout == f"mortise {mortise.__version__} (library {mortise.__version__})\n"


def test_the_version_is_the_librarys():
    """With the same version as before, pip would not install a newer wheel."""
    assert importlib.metadata.version("mortise") == mortise.__version__


def test_wheel():
    [path] = glob.glob(str(DIST / "*.whl"))
    version = re.escape(mortise.__version__)
    assert re.fullmatch(rf"mortise-{version}-cp310-abi3-linux_[a-z0-9_]+\.whl", os.path.basename(path))
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        script = wheel.read(next(name for name in names if name.endswith("/scripts/mortise")))
    assert script.startswith(b"#!python\n")
    assert {"mortise/py.typed", "mortise/_native.pyi", "mortise/_native.abi3.so", "mortise/_block.abi3.so", "mortise/_block.pyi", "mortise/_prefix/bin/mortise",
            "mortise/_prefix/lib/mortise/sqlite.so", "mortise/_prefix/lib/mortise/trace.so"} <= names
    assert not [name for name in names if "test" in name]
    bundled = {name for name in names if re.fullmatch(r"mortise/_prefix/lib/lib(?!mortise)[^/]*", name)}
    licenses = {name for name in names if name.startswith("mortise/_prefix/licenses/")}
    told = {name.replace("/lib/", "/licenses/") + ".copyright" for name in bundled}
    assert licenses <= told and (licenses == told or os.environ.get("MORTISE_REQUIRE_ALL") != "1")  # else some may be no package's


def test_no_path_leads_out():
    """The libraries are looked for in the package, and then where the system has them; never in the current directory."""
    folder = pathlib.Path(mortise.__file__).parent
    for file in [*folder.glob("*.so"), *folder.glob("_prefix/lib/**/*.so*"), folder / "_prefix/bin/mortise"]:
        text = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
        for path in re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", text):
            assert all(re.fullmatch(r"\$ORIGIN(/[a-z_.]+)*", part) for part in path.split(":")), f"{file}: {path}"


@pytest.mark.skipif("-fsanitize" in os.environ.get("MORTISE_CFLAGS", ""), reason="then no library is in the wheel")
def test_what_the_system_must_have():
    """What the wheel needs and does not contain is named by the pages."""
    folder = pathlib.Path(mortise.__file__).parent
    files = [*folder.glob("*.so"), *folder.glob("_prefix/lib/**/*.so*"), folder / "_prefix/bin/mortise"]
    text = subprocess.run(["readelf", "-d", *files], capture_output=True, text=True, check=True).stdout
    needed = {name for name in re.findall(r"NEEDED.*\[(.*)\]", text) if not re.fullmatch(C_LIBRARY, name)}
    outside = needed - {path.name for path in folder.glob("_prefix/lib/*.so*")}
    pages = [(SOURCE / page).read_text(encoding="utf-8") for page in ("docs/python.md", "bindings/python/README.md")]
    assert not [name for name in outside for page in pages if OF_THE_SYSTEM.get(name.split(".")[0], name) not in page]


def test_sdist():
    """It has what its build needs: the sources of the library too."""
    [path] = glob.glob(str(DIST / "*.tar.gz"))
    assert os.path.basename(path) == f"mortise-{mortise.__version__}.tar.gz"
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"setup.py", "pyproject.toml", "build-wheel.sh", "native/slot.c", "native/build.py", "mortise/__init__.py",
            "source/CMakeLists.txt", "source/core/libmortise.map", "source/include/mortise/mortise.h"} <= names
    assert {f"source/drivers/{name}/CMakeLists.txt" for name in os.listdir(SOURCE / "drivers")
            if (SOURCE / "drivers" / name / "CMakeLists.txt").exists()} <= names


def test_a_system_without_dpkg(tmp_path):
    """A library's license text is looked for there only. The rest of the wheel does not depend on it."""
    code = f"""import runpy, sys
sys.argv = ["setup.py", "--name"]
names = runpy.run_path({str(SOURCE / "bindings/python/setup.py")!r})
names["BuildPy"].copy_licenses({str(tmp_path)!r}, {{"libc.so.6": "/lib/libc.so.6"}})"""
    done = subprocess.run([sys.executable, "-c", code], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "no license text of libc.so.6" in done.stderr, done.stderr


def test_the_sources_of_the_sdist_can_be_configured(tmp_path):
    """As `pip install mortise-*.tar.gz` does; also where doxygen is installed."""
    [path] = glob.glob(str(DIST / "*.tar.gz"))
    subprocess.run(["tar", "-xf", path, "-C", tmp_path], check=True)
    [source] = tmp_path.glob("*/source")
    options = ["-DMORTISE_TESTS=OFF", "-DMORTISE_EXAMPLES=OFF", "-DMORTISE_BENCH=OFF", "-DMORTISE_DOXYGEN=doxygen"]
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []  # as setup.py does
    done = subprocess.run(["cmake", "-S", source, "-B", tmp_path / "build", *generator, *options], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_lazy():
    """What takes long to import is not needed for the import. bench/python.py measures the time."""
    code = "import sys, mortise; print([name for name in ('asyncio', 'inspect', 'cffi', 'ssl', 'sqlite3') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
                          capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_everything_is_there():
    for name in mortise.__all__:
        assert getattr(mortise, name).__doc__ or name == "THIS_THREAD"
    with pytest.raises(AttributeError):
        mortise.nothing


def test_statuses():
    """One exception for each status of the header, with its name."""
    header = (SOURCE / "include/mortise/mortise.h").read_text(encoding="utf-8")
    statuses = re.findall(r"(?m)^    X\((\w+), -(\d+), \"", header)
    assert len(statuses) >= 16
    from mortise import _errors
    for name, number in statuses:
        found = _errors.make(-int(number), "text")
        assert found.status == name and str(found) == "text" and getattr(mortise, type(found).__name__) is type(found)


def test_capabilities():
    header = (SOURCE / "include/mortise/mortise.h").read_text(encoding="utf-8")
    words = re.findall(r'(?m)^    X\(\w+, \d+, "(\w+)", "', header)
    from mortise import _values
    assert tuple(words) == _values.CAPABILITIES
