"""`etcdctl lock` as an adapter, the way that scripts use it: a process for each lock, which says that it has the lock, and
gives it back when it is ended. Most of what a cycle costs is that process; the queue and the requests are those of Go's
concurrency package."""

import ctypes
import os
import select
import signal
import subprocess
import sys

from adapter import main

LEAST_TTL_S = 2  # the servers give no less
PR_SET_PDEATHSIG = 1
prctl = ctypes.CDLL(None).prctl


def die_with_us():
    """A holder that is killed is this process and that one."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Etcdctl:
    def __init__(self, where):
        self.where = where
        self.environment = {**os.environ, "ETCDCTL_API": "3"}
        told = subprocess.run(["etcdctl", "version"], env=self.environment, check=True, stdout=subprocess.PIPE, text=True)
        self.version = "etcdctl " + told.stdout.split()[2]

    def worker(self):
        return None

    def another(self):
        return self

    def acquire(self, _worker, name, ttl_s, wait_s):
        key = "bench-etcdctl/" + name.replace("/", "%2F")  # for it, a lock contains those behind its slash
        words = ["etcdctl", "--endpoints", self.where, "lock", f"--ttl={max(int(ttl_s), LEAST_TTL_S)}", key]
        process = subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, preexec_fn=die_with_us)  # fmt: skip
        if select.select([process.stdout], [], [], wait_s)[0] and process.stdout.readline():
            return process
        self.release(process)
        return None

    @staticmethod
    def release(process):
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.stdout.close()


main(Etcdctl(sys.argv[1]))
