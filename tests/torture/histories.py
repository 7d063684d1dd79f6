"""Made-up histories, line by line, in the form in which clients and a torture run write them, and a test case that passes
them to the checker.
The program is $MORTISE_CHECK."""
import json
import os
import subprocess
import tempfile
import unittest

CHECK = os.environ["MORTISE_CHECK"]
MS = 1_000_000
TTL = 1000


class Client:
    """Writes what a client would; instants in milliseconds, `deadline` the instant too."""

    count = 0

    def __init__(self, pid=None):
        Client.count += 1
        self.id = f"{Client.count:032x}"
        self.pid = pid or 1000 + Client.count
        self.lines = []
        self.number = 0
        self.line("opened", 0, pid=self.pid, wall_ms=1, section="trace")

    def line(self, event, at, **more):
        more = {key: value for key, value in more.items() if value is not None}
        self.lines.append(json.dumps({"event": event, "at_ns": int(at * MS), "client": self.id} | more))

    def ask(self, at, name="a"):
        self.number += 1
        self.line("asked", at, name=name, caller=self.number)
        return self.number

    def grant(self, at, token, name="a", deadline=None, grant=None, owner=None, caller=None,
              event="granted", permits=None):
        """permits: it is shared; 0: among any number."""
        caller = caller or self.ask(at, name)
        mode = None if permits is None else "shared"
        lease = {"name": name, "lease": caller, "token": token, "owner": owner, "mode": mode, "permits": permits,
                 "grant": grant or f"{self.id[16:]}{caller:016x}"}
        self.line(event, at, caller=caller, deadline_ns=int((deadline or at + TTL) * MS), **lease)
        return lease

    def renew(self, at, lease, deadline=None):
        deadline = at + TTL if deadline is None else deadline
        self.line("renewed", at, deadline_ns=int(deadline * MS), **lease)

    def lose(self, at, lease):
        self.line("lost", at, status="LOST", **lease)

    def release(self, at, lease, status=None):
        self.line("released", at, status=status, **lease)

    def fail(self, at, caller, status, name="a"):
        self.line("failed", at, name=name, caller=caller, status=status)

    def hold(self, start, end, token, **more):
        lease = self.grant(start, token, **more)
        self.release(end, lease)
        return lease

    def read(self, start, end, token, permits=0, **more):
        return self.hold(start, end, token, permits=permits, **more)

    def downgrade(self, at, lease):
        self.line("downgraded", at, **lease | {"mode": "shared", "permits": 0})

    def close(self, at=100000):
        self.line("closed", at, events=len(self.lines), dropped=0)
        return self


def told(at, token, name="a"):
    """What a holder writes down that asks for the state."""
    return run({"event": "held", "at_ns": int(at * MS), "name": name, "token": token})


def run(*events):
    """Lines of the run itself, not of a client."""
    return [json.dumps(event) for event in events]


class Case(unittest.TestCase):
    def check(self, *histories, code=None, arguments=(), **expected):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, history in enumerate(histories):
                lines = history.lines if isinstance(history, Client) else history
                paths.append(f"{folder}/{number}.jsonl")
                with open(paths[-1], "wb") as file:
                    file.write(b"".join(line if isinstance(line, bytes) else line.encode() + b"\n"
                                        for line in lines))
            done = subprocess.run([CHECK, *arguments, *paths], capture_output=True, text=True,
                                  timeout=60)
        told = dict(word.split("=") for word in done.stdout.split())
        kinds = "overlap permits outlived order starved leftover unbalanced lost-update garbled".split()
        found = {kind.replace("-", "_"): int(told[kind]) for kind in kinds if told[kind] != "0"}
        self.assertEqual(found, expected, done.stderr)
        self.assertEqual(done.returncode, 1 if expected else 0, done.stderr)
        for kind in found:
            self.assertIn(f": {kind.replace('_', '-')}: ", done.stderr)
        return told
