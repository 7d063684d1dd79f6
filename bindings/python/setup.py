"""setup.py - the wheel: the package, its two modules in C, and in mortise/_prefix the library, its modules and the command.

They come from a build tree of Mortise, $MORTISE_BUILD_DIR; without it they are built here. In the source tree the sources
are ../.., in an sdist they are in source/."""
import glob
import os
import re
import shutil
import stat
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "source")
if not os.path.isdir(SOURCE):
    SOURCE = os.path.dirname(os.path.dirname(HERE))
# Libraries that a machine need not have, and that themselves need only the C library (libhiredis_ssl also needs OpenSSL).
# OpenSSL, and the libraries that libpq needs (TLS, Kerberos, LDAP), must get the system's security updates. So drivers that
# use them need the system's packages. docs/python.md names these.
BUNDLED = ("libinih.so", "libhiredis.so", "libhiredis_ssl.so", "libsqlite3.so", "libzookeeper_mt.so")
IN_SDIST = ("CMakeLists.txt", "LICENSE", "cmake", "core", "docs/api", "docs/man", "drivers", "include", "packaging",
            "plugins", "tools")


def version():
    with open(os.path.join(SOURCE, "include", "mortise", "mortise.h"), encoding="utf-8") as file:
        numbers = re.findall(r"(?m)^#define MORTISE_VERSION_(?:MAJOR|MINOR|PATCH) ([0-9]+)\b", file.read())
    if len(numbers) != 3:
        sys.exit(f"setup.py: {file.name} has {len(numbers)} of the three numbers of the version")
    return ".".join(numbers)


def run(*words):
    subprocess.run(words, check=True, stdout=sys.stderr)


def build_tree():
    """A build of Mortise, with the options of its build from the environment or of a release."""
    given = os.environ.get("MORTISE_BUILD_DIR")
    if given:
        return os.path.abspath(given)
    tree = os.path.join(HERE, "build", "mortise")
    generator = ["-G", "Ninja"] if shutil.which("ninja") and not os.path.exists(tree) else []
    run("cmake", "-S", SOURCE, "-B", tree, *generator, "-DCMAKE_BUILD_TYPE=Release", "-DMORTISE_TESTS=OFF",
        "-DMORTISE_EXAMPLES=OFF", "-DMORTISE_BENCH=OFF")
    run("cmake", "--build", tree, "--parallel", str(os.cpu_count() or 1))
    return tree


class BuildPy(build_py):
    """Also puts mortise/_prefix beside the modules."""

    def run(self):
        super().run()
        if not self.editable_mode:
            self.stage(os.path.join(self.build_lib, "mortise", "_prefix"))

    def stage(self, prefix):
        tree = build_tree()
        shutil.rmtree(prefix, ignore_errors=True)
        library = os.path.realpath(os.path.join(tree, "lib", "libmortise.so"))
        soname = re.search(r"\[(libmortise\.so\.[^\]]*)\]", self.output("readelf", "-d", library)).group(1)
        self.put(library, os.path.join(prefix, "lib", soname))
        self.put(os.path.join(tree, "bin", "mortise"), os.path.join(prefix, "bin", "mortise"))
        for module in sorted(glob.glob(os.path.join(tree, "lib", "mortise", "*.so"))):
            self.put(module, os.path.join(prefix, "lib", "mortise", os.path.basename(module)))
        if "-fsanitize" not in os.environ.get("MORTISE_CFLAGS", ""):
            self.bundle(prefix)
        shutil.copy(os.path.join(SOURCE, "LICENSE"), os.path.join(prefix, "LICENSE"))

    @staticmethod
    def output(*words):
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout

    @staticmethod
    def put(source, target):
        """A copy without debug information. Of its path of libraries only the parts beside it are kept: not the build tree,
        and not the empty parts with which CMake fills it up, which would be the current directory."""
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
        if not os.environ.get("MORTISE_CFLAGS"):
            run("strip", "--strip-unneeded", target)
        with open(target, "rb") as file:
            data = file.read()
        clean = re.sub(rb"\$ORIGIN[^\0]*", BuildPy.only_beside, data)
        with open(target, "wb") as file:
            file.write(clean)
        os.chmod(target, stat.S_IRUSR | stat.S_IWUSR | stat.S_IXUSR | 0o055)

    @staticmethod
    def only_beside(found):
        parts = [part for part in found[0].split(b":") if part.startswith(b"$ORIGIN")]
        return b":".join(parts).ljust(len(found[0]), b"\0")

    def bundle(self, prefix):
        lib = os.path.join(prefix, "lib")
        files = glob.glob(os.path.join(lib, "*.so*")) + glob.glob(os.path.join(lib, "mortise", "*.so"))
        bundled = {}
        for name, path in sorted(re.findall(r"(\S+) => (/\S+)", "".join(self.output("ldd", file) for file in files))):
            if name.startswith(BUNDLED) and not os.path.exists(os.path.join(lib, name)):
                bundled[name] = os.path.realpath(path)
                self.put(bundled[name], os.path.join(lib, name))
        self.copy_licenses(prefix, bundled)

    @staticmethod
    def copy_licenses(prefix, bundled):
        """Debian's texts about the authors and the licenses of these libraries, {name: path}. Other systems have none of that
        form. dpkg reads the lists of all packages each time, so it is asked once."""
        if bundled and not shutil.which("dpkg"):
            print(f"the wheel has no license text of {', '.join(bundled)}: there is no dpkg", file=sys.stderr)
        elif bundled:
            found = subprocess.run(["dpkg", "-S", *bundled.values()], stdout=subprocess.PIPE, text=True, check=False).stdout
            packages = {path: package for package, path in re.findall(r"(?m)^([^\s:,]+)[:,].* (/.*)$", found)}
            for name, path in bundled.items():
                text = f"/usr/share/doc/{packages.get(path)}/copyright"
                if os.path.exists(text):
                    os.makedirs(os.path.join(prefix, "licenses"), exist_ok=True)
                    shutil.copyfile(text, os.path.join(prefix, "licenses", f"{name}.copyright"))


class Sdist(sdist):
    """With the sources of the library."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for name in IN_SDIST:
            path, target = os.path.join(SOURCE, name), os.path.join(base_dir, "source", name)
            if os.path.isdir(path):
                shutil.copytree(path, target, dirs_exist_ok=True)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(path, target)


arguments = {}
if {"bdist_wheel", "build", "build_ext", "install", "develop", "editable_wheel"} & set(sys.argv):
    tree_now = os.environ["MORTISE_BUILD_DIR"] = build_tree()
    os.environ["MORTISE_LIB"] = os.path.join(tree_now, "lib")
    os.environ["MORTISE_INCLUDE"] = os.path.join(SOURCE, "include")
    arguments["cffi_modules"] = ["native/build.py:ffibuilder"]
    arguments["ext_modules"] = [Extension(
        "mortise._block", ["native/block.c"], py_limited_api=True, define_macros=[("Py_LIMITED_API", "0x030a0000")],
        extra_compile_args=["-std=gnu11", "-fvisibility=hidden", *os.environ.get("MORTISE_CFLAGS", "").split()],
        extra_link_args=os.environ.get("MORTISE_LDFLAGS", "").split())]

setup(
    version=version(),
    packages=["mortise"],
    package_data={"mortise": ["py.typed", "*.pyi"]},
    scripts=["bin/mortise"],
    cmdclass={"build_py": BuildPy, "sdist": Sdist},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
    zip_safe=False,
    **arguments)
