#!/usr/bin/env python3
"""Tests of the checker on shared leases: as in test_check.py, histories with one violation planted in each, and clean
ones that look like violations."""
import sys
import unittest

from histories import MS, Case, Client, run, told


class Clean(Case):
    def test_readers_then_a_writer(self):
        one, other, writer = Client(), Client(), Client()
        one.read(10, 40, 1)
        other.read(20, 30, 2)
        writer.hold(40, 50, 3)
        one.read(50, 60, 4)
        self.check(one.close(), other.close(), writer.close())

    def test_permits(self):
        clients = [Client() for _ in range(3)]
        for number, client in enumerate(clients):
            client.read(10 + number, 40 + number, number + 1, permits=3)
        clients[0].read(40, 50, 4, permits=3)
        clients[1].read(60, 70, 5, permits=2)
        self.check(*(client.close() for client in clients))

    def test_other_names(self):
        one, other = Client(), Client()
        one.read(10, 40, 1, name="a")
        other.hold(20, 30, 2, name="b")
        one.read(50, 60, 3, permits=1)
        other.read(50, 60, 4, permits=1, name="b")
        self.check(one.close(), other.close())

    def test_tokens_of_readers_that_asked_together(self):
        """Who was told first may have the larger token."""
        one, other, writer = Client(), Client(), Client()
        waiting = one.ask(5)
        other.read(10, 40, 2)
        one.release(50, one.grant(20, 1, caller=waiting, permits=0))
        writer.hold(60, 70, 3)
        self.check(one.close(), other.close(), writer.close())

    def test_token_of_a_claim_whose_caller_left(self):
        """A reader gets what another one of its process had asked for, before others that were quicker."""
        one, other = Client(), Client()
        first = one.ask(5)
        other.read(10, 20, 2)
        second = one.ask(30)
        one.fail(31, first, "TIMEDOUT")
        one.release(50, one.grant(32, 1, caller=second, permits=0))
        self.check(one.close(), other.close())

    def test_joined(self):
        """A reader joins one of its process: it has that one's grant and token, though others have larger ones."""
        one, other = Client(), Client()
        lease = one.grant(10, 1, permits=0)
        other.read(20, 50, 2)
        heir = one.grant(30, 1, event="joined", grant=lease["grant"], permits=0)
        one.release(40, lease)
        one.release(60, heir)
        self.check(one.close(), other.close(), told(55, 1), told(35, 1))

    def test_dead_reader_beside_a_living_one(self):
        """It keeps the writer out until its own deadline; the other one renews and is not concerned."""
        dead, living, writer = Client(pid=91), Client(), Client()
        dead.grant(10, 1, permits=0)
        lease = living.grant(20, 2, permits=0)
        living.renew(900, lease)
        living.release(1005, lease)
        writer.hold(1011, 1020, 3)
        self.check(dead, living.close(), writer.close(), run({"event": "killed", "at_ns": 50 * MS, "pid": 91}))

    def test_downgrade(self):
        one, other, writer = Client(), Client(), Client()
        lease = one.grant(10, 1)
        one.downgrade(15, lease)
        other.read(20, 50, 2)
        one.renew(30, lease | {"mode": "shared", "permits": 0})
        one.release(40, lease)
        writer.hold(50, 60, 3)
        self.check(one.close(), other.close(), writer.close())

    def test_renewed_at_the_last_instant(self):
        client = Client()
        lease = client.grant(10, 1, permits=0)
        client.renew(1009, lease)
        client.release(1500, lease)
        self.check(client.close())


class Planted(Case):
    def test_writer_beside_a_reader(self):
        one, other = Client(), Client()
        one.read(10, 30, 1)
        other.hold(29.999999, 40, 2)
        self.check(one.close(), other.close(), overlap=1)

    def test_reader_beside_a_writer(self):
        one, other = Client(), Client()
        one.hold(10, 30, 1)
        other.read(20, 25, 2)
        self.check(one.close(), other.close(), overlap=1)

    def test_writer_beside_many_readers(self):
        clients = [Client() for _ in range(4)]
        for number in range(3):
            clients[number].read(10 + number, 50, number + 1)
        clients[3].hold(40, 60, 4)
        self.check(*(client.close() for client in clients), overlap=3)

    def test_two_writers_between_readers(self):
        one, other, third = Client(), Client(), Client()
        one.read(10, 20, 1)
        other.hold(20, 40, 2)
        third.hold(30, 50, 3)
        one.read(50, 60, 4)
        self.check(one.close(), other.close(), third.close(), overlap=1)

    def test_writer_before_a_dead_readers_deadline(self):
        """The living one has released; the server forgot the one that was stopped."""
        one, other, writer = Client(), Client(), Client()
        lease = one.grant(10, 1, permits=0)
        other.read(20, 30, 2)
        writer.hold(1009, 1020, 3)
        one.lose(5000, lease)
        one.release(5001, lease, "LOST")
        self.check(one.close(), other.close(), writer.close(), overlap=1)

    def test_one_permit_too_many(self):
        clients = [Client() for _ in range(3)]
        for number, client in enumerate(clients):
            client.read(10 + number, 40, number + 1, permits=2)
        self.check(*(client.close() for client in clients), permits=1)

    def test_one_permit_too_many_before_a_deadline(self):
        """A permit that came back before the claim of its stopped holder had ended."""
        one, other, third = Client(), Client(), Client()
        lease = one.grant(10, 1, permits=2)
        other.read(20, 1500, 2, permits=2, deadline=2000)
        third.read(1009, 1020, 3, permits=2)
        one.lose(1600, lease)
        one.release(1601, lease, "LOST")
        self.check(one.close(), other.close(), third.close(), permits=1)

    def test_one_permit_joined(self):
        client = Client()
        lease = client.grant(10, 1, permits=1)
        client.release(30, client.grant(20, 1, event="joined", grant=lease["grant"], permits=1))
        client.release(40, lease)
        self.check(client.close(), permits=1)

    def test_other_numbers(self):
        one, other = Client(), Client()
        one.read(10, 40, 1, permits=3)
        other.read(20, 30, 2, permits=2)
        self.check(one.close(), other.close(), permits=1)

    def test_any_number_beside_permits(self):
        one, other = Client(), Client()
        one.read(10, 40, 1, permits=3)
        other.read(20, 30, 2, permits=0)
        self.check(one.close(), other.close(), permits=1)

    def test_readers_token_not_larger(self):
        one, other = Client(), Client()
        one.read(10, 40, 2)
        other.read(20, 30, 1)
        self.check(one.close(), other.close(), order=1)

    def test_readers_token_not_larger_after_others_had_left(self):
        one, other = Client(), Client()
        one.fail(8, one.ask(5), "TIMEDOUT")
        other.read(10, 20, 2)
        one.read(30, 40, 1)
        self.check(one.close(), other.close(), order=1)

    def test_readers_token_given_twice(self):
        one, other = Client(), Client()
        one.read(10, 40, 1)
        other.read(20, 30, 1)
        self.check(one.close(), other.close(), order=1)

    def test_readers_token_given_twice_at_once(self):
        one, other = Client(), Client()
        waiting = one.ask(5)
        other.read(10, 40, 1)
        one.release(50, one.grant(20, 1, caller=waiting, permits=0))
        self.check(one.close(), other.close(), order=1)

    def test_readers_token_below_a_writers(self):
        """However early it asked: it was let in after the writer."""
        one, other = Client(), Client()
        waiting = one.ask(5)
        other.hold(10, 20, 2)
        one.release(50, one.grant(20, 1, caller=waiting, permits=0))
        self.check(one.close(), other.close(), order=1)

    def test_writers_token_below_a_readers(self):
        one, other, third = Client(), Client(), Client()
        one.read(10, 20, 3)
        third.read(12, 20, 4)
        other.hold(30, 40, 3)
        self.check(one.close(), other.close(), third.close(), order=1)

    def test_revived(self):
        """Another one's renewal brings back a reader whose deadline had passed; its own renewal succeeds then."""
        one, other = Client(), Client()
        lease, living = one.grant(10, 1, permits=0), other.grant(20, 2, permits=0)
        other.renew(900, living)
        one.renew(1100, lease)
        other.release(1200, living)
        one.release(1201, lease)
        self.check(one.close(), other.close(), outlived=1)

    def test_revived_and_told(self):
        """It is told that it holds, by nobody's renewal but the other one's."""
        one, other = Client(), Client()
        lease, living = one.grant(10, 1, permits=0), other.grant(20, 2, permits=0)
        other.renew(900, living)
        one.lose(1200, lease)
        one.release(1201, lease, "LOST")
        other.release(1300, living)
        self.check(one.close(), other.close(), told(1100, 1), told(1100, 2), outlived=1)

    def test_revived_dead(self):
        """The dead one is kept alive by the other's renewals, for as long as those go on: a writer has no turn."""
        dead, other, writer = Client(pid=92), Client(), Client()
        dead.grant(10, 1, permits=0)
        waiting = writer.ask(60)
        other.read(20, 500, 2)
        writer.fail(90000, waiting, "CLOSED")
        self.check(dead, other.close(), writer.close(), run({"event": "killed", "at_ns": 50 * MS, "pid": 92}),
                   run({"event": "calm", "at_ns": 1000 * MS}), starved=1)

    def test_reader_before_a_downgrade(self):
        one, other = Client(), Client()
        lease = one.grant(10, 1)
        one.downgrade(15, lease)
        other.read(12, 50, 2)
        one.release(40, lease)
        self.check(one.close(), other.close(), overlap=1)

    def test_writer_after_a_downgrade(self):
        one, other = Client(), Client()
        lease = one.grant(10, 1)
        one.downgrade(15, lease)
        other.hold(20, 30, 2)
        one.release(40, lease)
        self.check(one.close(), other.close(), overlap=1)

    def test_downgrade_of_nothing(self):
        client = Client()
        client.downgrade(30, client.hold(10, 20, 1))
        self.check(client.close(), unbalanced=1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
