#!/usr/bin/env python3
"""Tests of the checker: histories with one planted violation each, which it must find, and no other; and correct histories
that look like violations, in which it must find nothing."""
import subprocess
import sys
import unittest

from histories import CHECK, MS, Case, Client, run, told


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

    def test_renewed_when_the_deadline_had_passed(self):
        client = Client()
        lease = client.grant(10, 1)
        client.renew(1012, lease, deadline=0)
        client.lose(1013, lease)
        client.hold(1014, 1020, 2)
        client.release(1021, lease, "LOST")
        self.check(client.close())

    def test_renewed_after_a_stop(self):
        """The process stood still when the deadline passed; the renewal had been executed before."""
        client = Client(pid=85)
        lease = client.grant(10, 1)
        client.renew(1500.5, lease, deadline=1900)
        client.release(1600, lease)
        self.check(client.close(), run({"event": "stopped", "at_ns": 900 * MS, "until_ns": 1500 * MS, "pid": 85}))
        earlier = run({"event": "stopped", "at_ns": 900 * MS, "until_ns": 1401 * MS, "pid": 85})
        self.check(client, earlier, arguments=["slack=100"])
        self.check(client, earlier, arguments=["slack=99"], outlived=1)

    def test_renewed_soon_after_a_stop(self):
        """The process goes on before the deadline, and has no processor until that has passed."""
        client = Client(pid=85)
        lease = client.grant(10, 1)
        client.renew(1020, lease, deadline=1900)
        client.release(1600, lease)
        client.close()
        stop = run({"event": "stopped", "at_ns": 900 * MS, "until_ns": 990 * MS, "pid": 85})
        self.check(client, stop, arguments=["slack=100"])
        self.check(client, stop, arguments=["slack=30"], outlived=1)

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

    def test_killed_while_it_tells(self):
        """Its own file ends in half a line; no client writes there, but its first line names the process."""
        one = Client(pid=77)
        one.hold(10, 20, 1)
        mine = run({"event": "process", "at_ns": 5 * MS, "pid": 77}) + told(15, 1) + [b'{"event":"hel' + b"\0" * 5000]
        self.check(one, mine, run({"event": "killed", "at_ns": 50 * MS, "pid": 77}))

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

    def test_told_while_it_is_held(self):
        one, other = Client(), Client()
        lease = one.grant(10, 5)
        one.renew(500, lease)
        other.hold(1600, 1700, 6)
        one.lose(1500, lease)
        one.release(1601, lease, "LOST")
        self.check(one.close(), other.close(), told(10, 5), told(1499.999999, 5), told(1650, 6))

    def test_told_of_a_name_with_a_namespace(self):
        one, other = Client(), Client()
        one.hold(10, 20, 5, name="mortise:a")
        other.hold(10, 30, 5, name="mortise:b")
        self.check(one.close(), other.close(), told(15, 5, "a"), told(25, 5, "b"))
        self.check(one, other, told(25, 5, "a"), outlived=1)

    def test_told_after_a_hand_over(self):
        client = Client()
        lease = client.hold(10, 20, 1)
        client.release(30, client.grant(20, 1, event="handed-over", grant=lease["grant"]))
        self.check(client.close(), told(29, 1), told(15, 1))

    def test_failures_during_faults(self):
        client = Client()
        client.fail(50000, client.ask(10), "UNREACHABLE")
        client.fail(50000, client.ask(10), "TIMEDOUT")
        calm = run({"event": "calm", "at_ns": 60000 * MS})
        self.check(client.close(), calm, arguments=["patience=1000"])

    def test_long_after_the_last_fault(self):
        """Whichever way an observer writes that it went well."""
        client = Client()
        caller = client.ask(60010)
        client.line("granted", 60011, caller=caller, name="a", lease=1, token=1, grant="1" * 32, status="OK",
                    deadline_ns=61011 * MS)
        client.line("released", 60012, name="a", lease=1, token=1, grant="1" * 32, status="OK")
        client.fail(60030, client.ask(60020), "TIMEDOUT")
        self.check(client.close(), run({"event": "calm", "at_ns": 1000 * MS}))

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

    def test_overlap_before_a_renewal_that_came_too_late(self):
        """The deadline had passed when that was written down; what was held until then was held."""
        one, other = Client(), Client()
        lease = one.grant(10, 1)
        other.hold(500, 600, 2)
        one.renew(1012, lease, deadline=0)
        one.lose(1013, lease)
        one.release(1014, lease, "LOST")
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

    def test_outlived_its_deadline(self):
        one, other = Client(), Client()
        lease = one.grant(10, 5)
        other.hold(1011, 1020, 6)
        one.lose(1200, lease)
        one.release(1201, lease, "LOST")
        self.check(one.close(), other.close(), told(1010, 5), outlived=1)

    def test_renewed_after_its_end(self):
        """Nobody stopped it; or that was over before, or another one was stopped; or it looked again later."""
        for pid, begin, end in ((87, 900, 1500), (86, 100, 900), (86, 1100, 1500), (86, 900, 1400)):
            with self.subTest(pid=pid, begin=begin):
                client = Client(pid=86)
                lease = client.grant(10, 1)
                client.renew(1500.5, lease, deadline=1900)
                client.release(1600, lease)
                stopped = {"event": "stopped", "at_ns": begin * MS, "until_ns": end * MS, "pid": pid}
                self.check(client.close(), run(stopped), outlived=1)

    def test_outlived_its_loss(self):
        client = Client()
        lease = client.grant(10, 5)
        client.lose(20, lease)
        client.release(40, lease, "LOST")
        client.hold(50, 60, 6)
        self.check(client.close(), told(30, 5), told(55, 6), outlived=1)

    def test_told_of_nothing(self):
        client = Client()
        client.hold(10, 20, 5)
        self.check(client.close(), told(15, 4), unbalanced=1)

    def test_no_token(self):
        client = Client()
        client.hold(10, 20, 0)
        self.check(client.close())
        self.check(client, arguments=["fencing=1"], order=1)

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

    def test_starved_in_a_load(self):
        """Nothing is broken from the first instant on, and one of many gets nothing while the others do."""
        one, other = Client(), Client()
        waiting = one.ask(10)
        for turn in range(300):
            other.hold(100 * turn + 11, 100 * turn + 60, turn + 1)
        one.release(29991, one.grant(29990, 301, caller=waiting))
        calm = run({"event": "calm", "at_ns": 1 * MS})
        self.check(one.close(30100), other.close(30000), calm, arguments=["patience=20000"], starved=1)
        told = self.check(one, other, calm, arguments=["patience=29981"])
        self.assertEqual(told["longest"], "29980")

    def test_starved_in_a_load_and_not_served(self):
        """The load is over before its turn has come."""
        one, other = Client(), Client()
        one.fail(30000, one.ask(5000), "CLOSED")
        other.hold(10, 20, 1)
        calm = run({"event": "calm", "at_ns": 5 * MS})
        self.check(one.close(), other.close(), calm, arguments=["patience=20000"], starved=1)

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

    def test_shortened_by_a_renewal(self):
        one, other = Client(), Client()
        lease = one.grant(10, 1)
        one.renew(20, lease, deadline=15)
        other.hold(500, 600, 2)
        one.release(700, lease)
        self.check(one.close(), other.close(), unbalanced=1, overlap=1)

    def test_lost_twice(self):
        client = Client()
        lease = client.grant(10, 1)
        client.lose(20, lease)
        client.lose(21, lease)
        client.release(40, lease)
        self.check(client.close(), unbalanced=1)

    def test_opened_twice(self):
        client = Client()
        client.line("opened", 5, pid=client.pid)
        self.check(client.close(), unbalanced=1)

    def test_closed_twice(self):
        client = Client()
        client.close(10)
        self.check(client.close(20), unbalanced=1)

    def test_asked_while_it_waits(self):
        client = Client()
        caller = client.ask(10)
        client.line("asked", 11, name="a", caller=caller)
        client.fail(20, caller, "BUSY")
        self.check(client.close(), unbalanced=1)

    def test_waits_unasked(self):
        client = Client()
        client.line("queued", 10, name="a", caller=7)
        self.check(client.close(), unbalanced=1)

    def test_another_name(self):
        client = Client()
        client.release(30, client.grant(20, 1, name="b", caller=client.ask(10, "a")))
        self.check(client.close(), unbalanced=1)

    def test_lease_given_twice(self):
        client = Client()
        lease = client.grant(10, 1)
        again = client.ask(11)
        client.line("granted", 12, caller=again, deadline_ns=1012 * MS, **lease)
        client.release(20, lease)
        self.check(client.close(), unbalanced=1)

    def test_suspect_when_lost(self):
        client = Client()
        lease = client.grant(10, 1)
        client.lose(20, lease)
        client.line("suspect", 30, status="TIMEDOUT", **lease)
        client.release(40, lease, "LOST")
        self.check(client.close(), unbalanced=1)

    def test_of_no_client(self):
        self.check(run({"event": "granted", "at_ns": 1, "name": "a"}), unbalanced=1)

    def test_killed_for_no_outcome_of_another(self):
        """Who was killed excuses nobody else."""
        one, other = Client(pid=81), Client(pid=82)
        one.ask(10)
        other.ask(10)
        self.check(one, other, run({"event": "killed", "at_ns": 50 * MS, "pid": 81}), unbalanced=1, starved=1)

    def test_written_unread(self):
        self.check(run({"event": "write", "name": "a", "token": 1, "value": 2}), lost_update=1)

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

    def test_half_a_line_of_a_living_process(self):
        """Who was killed before, or is another, excuses nothing."""
        client = Client()
        client.hold(10, 20, 1)
        mine = run({"event": "process", "at_ns": 60 * MS, "pid": 83}) + told(15, 1) + [b'{"event":"hel']
        self.check(client.close(), mine, run({"event": "killed", "at_ns": 50 * MS, "pid": 83},
                                             {"event": "killed", "at_ns": 70 * MS, "pid": 84}), garbled=1)

    def test_dropped(self):
        client = Client()
        client.line("dropped", 10, count=3)
        self.check(client.close(), garbled=1)


class Usage(unittest.TestCase):
    def test_codes(self):
        for arguments, code in (([], 64), (["patience=x", "/dev/null"], 64), (["patience=1"], 64),
                                (["fencing=2", "/dev/null"], 64), (["fencing=1", "patience=1"], 64),
                                (["/nowhere/at/all"], 2), (["/dev/null"], 2)):
            with self.subTest(arguments):
                done = subprocess.run([CHECK, *arguments], capture_output=True, timeout=60)
                self.assertEqual(done.returncode, code)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
