"""What the figures were measured on, and with which versions of what."""

import os
import platform
import shutil
import subprocess
import time

from . import parts


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine() or "unknown processor"


def first_line(*command):
    if not shutil.which(command[0]):
        return None
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return (done.stdout.strip().splitlines() or [""])[0]


def source():
    """The commit of the tree that this lies in, if it does."""
    if not shutil.which("git"):
        return ""
    command = ["git", "-C", os.path.dirname(__file__), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def describe():
    try:
        system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        system = platform.system()
    versions = {
        "mortise": f"built as {parts.build_type or 'no type'}" + (f", source at {commit}" if (commit := source()) else ""),
        "redis-server": first_line("redis-server", "--version"),
        "java": first_line("java", "--version"),
        "node": first_line("node", "--version"),
        "python": platform.python_version(),
    }
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "system": system,
        "kernel": f"{platform.system()} {platform.release()}",
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC",
        "load": [round(load, 2) for load in os.getloadavg()],
        "programs": {name: text for name, text in versions.items() if text},
    }
