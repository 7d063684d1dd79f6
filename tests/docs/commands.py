#!/usr/bin/env python3
"""commands.py TREE - runs the commands, programs and configs of README.md and docs/install.md, in their order and word by
word, in TREE, a fresh copy of the source. It changes /usr, /etc and /var, so commands.sh creates a root directory for it. It
leaves out only what another test does: cpack (tests/packages). It needs no sudo, because it runs as root there.

A file that the build of the tests has compiled by the same command, but for optimisation, debug information, hardening and warnings,
is not compiled again: its object is taken from there. With MORTISE_NIGHTLY=1 all files are compiled."""
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys

tree = sys.argv[1]
home = os.path.join(tree, "home")
source, build = os.environ["MORTISE_SOURCE_DIR"], os.environ["MORTISE_BUILD_DIR"]
environment = {"PATH": f"{home}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home,
               "USER": "root", "LANG": "C.UTF-8"}
LEFT_OUT = {"(cd build-quickstart && cpack)"}
STEPS = {
    "sh examples/quickstart.sh": r"(?s)2000 of 2000.*only one of us at a time$",
    "sudo cmake --install build-quickstart && sudo ldconfig": r"libmortise\.so",
    "mortise run nightly -- echo working": r"^working$",
    "mortise run -n nightly -- backup.sh": r"^backed up$",
    "mortise run --permits 4 job -- backup.sh": r"^backed up$",
    "mortise status nightly": r"^nightly\tfree",
    "mortise check": r"(?s)/srv/mortise/locks\.db",
}
# Words in which two commands of the compiler may differ: both give the same program.
UNLIKE = ["-[OgW]*", "-M[DTF]", "*.o", "*.o.d", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=*"]
COMPILER = f"""#!/bin/sh
command='' last='' object=''
for word; do
    case $word in
    {" | ".join(UNLIKE)}) ;;
    *) command="$command $word" ;;
    esac
    [ "$last" != -o ] || object=$word
    last=$word
done
if [ -f "$HOME/made$PWD/$object" ]; then
    {{ read -r as && read -r made; }} <"$HOME/made$PWD/$object"
    [ " $as" != "$command" ] || exec cp "$made" "$object"
fi
# What is built is neither measured nor checked: so the compiler takes a third of the time.
exec /usr/bin/cc "$@" -O0 -g0 -w
"""


def run(command, pattern, where=tree):
    ran = subprocess.run(["sh", "-c", command], cwd=where, env=environment, stdin=subprocess.DEVNULL, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
    assert ran.returncode == 0 and re.search(pattern, ran.stdout.rstrip("\n")), f"{command}: {ran.returncode}\n{ran.stdout}"
    print("passed:", command)


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def remember_objects():
    """For COMPILER: a file for each object of the build of the tests, at its place in the other build: the command, the object."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        text = file.read()
    unlike = re.compile("|".join(map(fnmatch.translate, UNLIKE)))
    there = text.replace(build, f"{tree}/build-quickstart").replace(source, tree)
    for one, other in zip(json.loads(text), json.loads(there)):
        words = re.sub(r"\\(.)", r"\1", other["command"]).split()  # a word in quotes fits nothing, and is compiled
        name = words[words.index("-o") + 1]
        words = [word for word in words if not unlike.match(word)]
        compiler = ""
        while not words[0].startswith("-"):  # the compiler is the last of these; a cache may start it
            compiler = words.pop(0)
        made = f"{one['directory']}/{name}"
        if not os.path.exists(made) or not os.path.exists(compiler) or not os.path.samefile(compiler, "/usr/bin/cc"):
            continue
        if os.path.getmtime(made) >= os.path.getmtime(one["file"]):  # who edits a header builds before the test, as run.sh does
            write(f"{home}/made{other['directory']}/{name}", f"{' '.join(words)}\n{made}\n")


def blocks(readme):
    """(language, text) of each, in order; "" is an indented one."""
    for fenced, indented in re.findall(r"(?ms)(^```\w+\n.*?^```$)|((?:^    [^\n]*\n)+)", readme):
        language, text = re.fullmatch(r"(?s)```(\w+)\n(.*)```", fenced).groups() if fenced else ("", indented)
        yield language, text


def with_redis(check):
    """Where redis.example is this machine: with a network of our own its port is free."""
    with open("/etc/hosts", "a", encoding="utf-8") as hosts:
        hosts.write("127.0.0.1 redis.example\n")
    run("exec unshare -n sh -euc 'ip link set lo up\n"
        "setpriv --pdeathsig KILL redis-server --port 6379 --save \"\" >/dev/null & server=$!\n"
        "until redis-cli -h redis.example ping | grep -q PONG; do kill -0 $server; done\n"
        f"{check}\nkill $server'", r"Redis .*redis\.example:6379")


def config(text):
    """At the system's place, without a word on the command line."""
    write("/etc/mortise/mortise.conf", text)
    run(re.search(r"(?m); (sudo install .*)$", text).group(1), "")
    run("mortise check", r"(?s)/etc/mortise/mortise\.conf.*SQLite")
    run("mortise run nightly -- true && test -s " + re.search(r"(?m)^path = (\S*)", text).group(1), "")


def redis_url():
    url = re.search("`(redis://[^`]*)`", readme).group(1)
    if shutil.which("redis-server"):
        with_redis(f"mortise -C {url} check; mortise -C {url} run nightly -- backup.sh")
    elif os.environ.get("MORTISE_REQUIRE_ALL") == "1":
        raise AssertionError("there is no redis-server")


def program(text):
    """Built by the README's own line."""
    build = re.search(r"`(cc program\.c \$\(pkg-config [^`]*)`", readme).group(1)
    write(os.path.join(home, "program.c"), text)
    run(f"{build} && ./a.out", r"^working, token [1-9]", home)


readme = ""
for page in ("README.md", "docs/install.md"):
    with open(os.path.join(tree, page), encoding="utf-8") as file:
        readme += file.read()
write(os.path.join(home, "sudo"), '#!/bin/sh\nexec "$@"\n', 0o755)
write(os.path.join(home, "cc"), COMPILER, 0o755)
if os.environ.get("MORTISE_NIGHTLY") != "1":
    remember_objects()
write(os.path.join(home, "backup.sh"), "#!/bin/sh\necho backed up\n", 0o755)
found = shutil.which("mortise", path=environment["PATH"])
assert not found, f"{found} is there already: nothing would be proved"
for folder in ("/etc/mortise", "/srv/mortise", "/var/lib/mortise"):
    shutil.rmtree(folder, ignore_errors=True)
done = []
for language, text in blocks(readme):
    done.append(language)
    if language == "c":
        program(text)
    elif language == "ini":
        config(text)
    elif language not in ("diff", "python"):  # its servers do not exist: readme.py; bindings/python/tests run the program
        for command in (line.partition("  #")[0].strip() for line in text.splitlines()):
            if command not in LEFT_OUT:
                run(command, STEPS.pop(command))
assert sorted(done) == ["", "", "c", "diff", "ini", "python", "sh", "sh"] and not STEPS, f"the pages have {done}, and not {STEPS}"
url = re.search(r"`(mortise -C 'sqlite:[^`]* run) …`", readme).group(1)
run(f"{url} x -- echo held", "^held$")
redis_url()
