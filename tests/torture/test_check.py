#!/usr/bin/env python3
"""Tests of the checker: histories with one violation planted in each, which it must find, and that alone; and
clean ones that look like violations, where it must find nothing. The program is $MORTISE_CHECK."""
import json
import os
import subprocess
import sys
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
              event="granted"):
        caller = caller or self.ask(at, name)
        lease = {"name": name, "lease": caller, "token": token, "owner": owner,
                 "grant": grant or f"{self.id[16:]}{caller:016x}"}
        self.line(event, at, caller=caller, deadline_ns=int((deadline or at + TTL) * MS), **lease)
        return lease

    def renew(self, at, lease, deadline=None):
        self.line("renewed", at, deadline_ns=int((deadline or at + TTL) * MS), **lease)

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

    def close(self, at=100000):
        self.line("closed", at, events=len(self.lines), dropped=0)
        return self


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
        kinds = "overlap order starved leftover unbalanced lost-update garbled".split()
        found = {kind.replace("-", "_"): int(told[kind]) for kind in kinds if told[kind] != "0"}
        self.assertEqual(found, expected, done.stderr)
        self.assertEqual(done.returncode, 1 if expected else 0, done.stderr)
        for kind in found:
            self.assertIn(f": {kind.replace('_', '-')}: ", done.stderr)
        return told


class Clean(Case):
    def test_one_after_the_other(self):
        one, other = Client(), Client()
        one.hold(10, 20, 1)
        other.hold(20, 30, 2)
        one.hold(31, 40, 3)
        told = self.check(one.close(), other.close())
        self.assertEqual((told["clients"], told["holds"]), ("2", "3"))

    def test_other_names(self):
        one, other = Client(), Client()
        one.hold(10, 20, 5, name="a")
        other.hold(10, 20, 5, name="b")
        self.check(one.close(), other.close())

    def test_stopped_holder(self):
        """Its deadline ends what it holds, whatever it writes when it goes on."""
        one, other = Client(), Client()
        lease = one.grant(10, 1)
        other.hold(1011, 1020, 2)
        one.lose(5000, lease)
        one.release(5001, lease, "LOST")
        self.check(one.close(), other.close())

    def test_renewed_in_time(self):
        one, other = Client(), Client()
        lease = one.grant(10, 1)
        one.renew(500, lease)
        one.line("suspect", 1200, status="TIMEDOUT", **lease)
        other.hold(1501, 1600, 2)
        one.lose(1500, lease)
        one.release(1700, lease, "LOST")
        self.check(one.close(), other.close())

    def test_told_too_late(self):
        """Granted to a process that was stopped until the deadline had passed: held at no instant."""
        one, other = Client(), Client()
        lease = one.grant(3000, 1, deadline=1010)
        one.lose(3000, lease)
        one.release(3001, lease, "LOST")
        other.hold(2000, 4000, 2)
        self.check(one.close(), other.close())

    def test_killed(self):
        """Holds nothing any more, has no outcome, and leaves half a line."""
        one, other = Client(pid=77), Client()
        one.grant(10, 1)
        one.ask(11, "b")
        one.lines.append(b'{"event":"gran')
        other.hold(60, 70, 2)
        self.check(one, other.close(), run({"event": "killed", "at_ns": 50 * MS, "pid": 77}))

    def test_killed_mapped(self):
        """A file that was mapped ends in NUL bytes."""
        one = Client(pid=78)
        one.hold(10, 20, 1)
        one.lines.append(b'{"event":"gran' + b"\0" * 5000)
        self.check(one, run({"event": "killed", "at_ns": 50 * MS, "pid": 78}))
        other = Client()
        other.hold(10, 20, 1)
        other.close()
        other.lines.append(b"\0" * 5000)
        self.check(other)

    def test_pid_used_again(self):
        one, other = Client(pid=79), Client(pid=79)
        one.lines[0] = one.lines[0].replace('"at_ns": 0', '"at_ns": 1')
        other.lines[0] = other.lines[0].replace('"at_ns": 0', f'"at_ns": {60 * MS}')
        one.grant(10, 1)
        other.hold(70, 80, 2)
        self.check(one, other.close(), run({"event": "killed", "at_ns": 50 * MS, "pid": 79}))

    def test_handed_over(self):
        client = Client()
        waiting = client.ask(5)
        client.line("queued", 5, name="a", caller=waiting)
        lease = client.hold(10, 20, 1)
        client.release(30, client.grant(20, 1, event="handed-over", caller=waiting,
                                        grant=lease["grant"]))
        self.check(client.close())

    def test_shared(self):
        one, other = Client(), Client()
        one.hold(10, 40, 7, owner="both")
        other.hold(20, 30, 7, owner="both")
        one.hold(50, 60, 8)
        self.check(one.close(), other.close())

    def test_failures_during_faults(self):
        client = Client()
        client.fail(50000, client.ask(10), "UNREACHABLE")
        client.fail(50000, client.ask(10), "TIMEDOUT")
        calm = run({"event": "calm", "at_ns": 60000 * MS})
        self.check(client.close(), calm, arguments=["patience=1000"])

    def test_without_tokens(self):
        one, other = Client(), Client()
        one.hold(10, 20, None)
        other.hold(20, 30, None)
        self.check(one.close(), other.close())

    def test_counter(self):
        told = self.check(run({"event": "read", "name": "a", "token": 1},
                              {"event": "write", "name": "a", "token": 1, "value": 1},
                              {"event": "read", "name": "b", "token": 1},
                              {"event": "read", "name": "a", "token": 2},
                              {"event": "write", "name": "a", "token": 1, "value": 2},
                              {"event": "write", "name": "a", "token": 2, "value": 2}))
        self.assertEqual((told["writes"], told["refused"]), ("2", "1"))

    def test_foreign_names(self):
        one, other = Client(), Client()
        one.hold(10, 30, 1, name='"\\u0001\\}')
        other.hold(10, 30, 1, name='"\\u0001\\}{')
        self.check(one.close(), other.close())


class Planted(Case):
    def test_overlap(self):
        one, other = Client(), Client()
        one.hold(10, 30, 1)
        other.hold(29.999999, 40, 2)
        self.check(one.close(), other.close(), overlap=1)

    def test_overlap_within(self):
        one, other, third = Client(), Client(), Client()
        one.hold(10, 100, 1)
        other.hold(20, 30, 2)
        third.hold(40, 50, 3)
        self.check(one.close(), other.close(), third.close(), overlap=2)

    def test_overlap_in_one_client(self):
        client = Client()
        lease = client.grant(10, 1)
        client.hold(20, 30, 2)
        client.release(40, lease)
        self.check(client.close(), overlap=1)

    def test_overlap_before_the_deadline(self):
        """Stopped before its deadline; the next one got in one millisecond too early."""
        one, other = Client(), Client()
        lease = one.grant(10, 1)
        other.hold(1009, 1020, 2)
        one.lose(5000, lease)
        one.release(5001, lease, "LOST")
        self.check(one.close(), other.close(), overlap=1)

    def test_overlap_after_a_renewal(self):
        one, other = Client(), Client()
        lease = one.grant(10, 1)
        one.renew(900, lease)
        other.hold(1500, 1600, 2)
        one.lose(1700, lease)
        one.release(1701, lease, "LOST")
        self.check(one.close(), other.close(), overlap=1)

    def test_overlap_handed_over(self):
        """The same grant and token, and the first holder had not given it back."""
        client = Client()
        lease = client.grant(10, 1)
        heir = client.grant(20, 1, event="handed-over", grant=lease["grant"])
        client.release(30, lease)
        client.release(40, heir)
        self.check(client.close(), overlap=1)

    def test_overlap_with_another_owner(self):
        one, other = Client(), Client()
        one.hold(10, 40, 7, owner="one")
        other.hold(20, 30, 8, owner="other")
        self.check(one.close(), other.close(), overlap=1)

    def test_overlap_until_killed(self):
        one, other = Client(pid=80), Client()
        one.grant(10, 1)
        other.hold(40, 70, 2)
        self.check(one, other.close(), run({"event": "killed", "at_ns": 50 * MS, "pid": 80}),
                   overlap=1)

    def test_token_goes_back(self):
        one, other = Client(), Client()
        one.hold(10, 20, 5)
        other.hold(30, 40, 4)
        self.check(one.close(), other.close(), order=1)

    def test_token_given_twice(self):
        one, other = Client(), Client()
        one.hold(10, 20, 5)
        other.hold(30, 40, 5)
        self.check(one.close(), other.close(), order=1)

    def test_grant_of_another_client(self):
        one, other = Client(), Client()
        lease = one.hold(10, 20, 5)
        other.hold(30, 40, 5, grant=lease["grant"])
        self.check(one.close(), other.close(), order=1)

    def test_token_below_an_older_one(self):
        one, other = Client(), Client()
        one.hold(10, 20, 5)
        other.hold(30, 40, 7)
        one.hold(50, 60, 6)
        self.check(one.close(), other.close(), order=1)

    def test_token_missing_once(self):
        one, other = Client(), Client()
        one.hold(10, 20, 5)
        other.hold(30, 40, None)
        self.check(one.close(), other.close(), order=1)

    def test_token_changes(self):
        client = Client()
        lease = client.grant(10, 5)
        client.renew(20, lease | {"token": 6})
        client.release(30, lease)
        self.check(client.close(), order=1)

    def test_starved(self):
        client = Client()
        waiting = client.ask(10)
        client.fail(90000, waiting, "TIMEDOUT")
        calm = run({"event": "calm", "at_ns": 50000 * MS})
        self.check(client.close(), calm, starved=1)
        self.check(client, calm, arguments=["patience=39999"], starved=1)
        self.check(client, calm, arguments=["patience=40001"])

    def test_starved_and_served(self):
        one, other = Client(), Client()
        waiting = one.ask(10)
        for turn in range(100):
            other.hold(1000 * turn + 11, 1000 * turn + 12, turn + 1)
        one.release(100001, one.grant(100000, 200, caller=waiting))
        self.check(one.close(100002), other.close(), run({"event": "calm", "at_ns": 100 * MS}),
                   starved=1)

    def test_not_healed(self):
        client = Client()
        client.fail(60011, client.ask(60010), "UNREACHABLE")
        calm = run({"event": "calm", "at_ns": 1000 * MS})
        self.check(client.close(), calm, starved=1)

    def test_left_in_the_server(self):
        self.check(run({"event": "left", "text": "key mortise:a"}), leftover=1)

    def test_never_given_back(self):
        client = Client()
        client.grant(10, 1)
        self.check(client.close(), leftover=1)

    def test_no_outcome(self):
        client = Client()
        client.ask(10)
        self.check(client.close(), unbalanced=1)

    def test_not_asked(self):
        client = Client()
        client.release(20, client.grant(10, 1, caller=9))
        self.check(client.close(), unbalanced=1)

    def test_two_outcomes(self):
        client = Client()
        client.hold(10, 20, 1)
        client.fail(30, 1, "TIMEDOUT")
        self.check(client.close(), unbalanced=1)

    def test_released_twice(self):
        client = Client()
        client.release(30, client.hold(10, 20, 1))
        self.check(client.close(), unbalanced=1)

    def test_lost_and_renewed(self):
        client = Client()
        lease = client.grant(10, 1)
        client.lose(20, lease)
        client.renew(30, lease)
        client.release(40, lease)
        self.check(client.close(), unbalanced=1)

    def test_lost_twice(self):
        client = Client()
        lease = client.grant(10, 1)
        client.lose(20, lease)
        client.lose(21, lease)
        client.release(40, lease)
        self.check(client.close(), unbalanced=1)

    def test_vanished(self):
        """It was not killed, and its history has no end: it crashed, or hangs."""
        client = Client()
        client.hold(10, 20, 1)
        self.check(client, unbalanced=1)

    def test_lost_update(self):
        self.check(run({"event": "read", "name": "a", "token": 1},
                       {"event": "read", "name": "a", "token": 1},
                       {"event": "write", "name": "a", "token": 1, "value": 1},
                       {"event": "write", "name": "a", "token": 1, "value": 1}), lost_update=1)

    def test_garbled(self):
        for bad in ("{", "nonsense", '{"event":}', '{"event":"asked"', '{"at_ns":1}', "[]", "{}x",
                    '{"event":"asked","at_ns":12e}', '{"event":"asked","at_ns":99999999999999999999}',
                    '{"event":"asked","caller":-1}', '{"event":"asked",}', ""):
            with self.subTest(bad):
                client = Client()
                client.lines.append(bad)
                self.check(client.close(), garbled=1)

    def test_half_a_line(self):
        client = Client()
        client.close()
        client.lines.append(b'{"event":"ask')
        self.check(client, garbled=1)

    def test_dropped(self):
        client = Client()
        client.line("dropped", 10, count=3)
        self.check(client.close(), garbled=1)


class Usage(unittest.TestCase):
    def test_codes(self):
        for arguments, code in (([], 64), (["patience=x", "/dev/null"], 64), (["patience=1"], 64),
                                (["/nowhere/at/all"], 2), (["/dev/null"], 2)):
            with self.subTest(arguments):
                done = subprocess.run([CHECK, *arguments], capture_output=True, timeout=60)
                self.assertEqual(done.returncode, code)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
