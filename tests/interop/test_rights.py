"""test_rights.py - the rights that an ACL user needs: the test reads the list from docs/redis.md and tries it on a real
server. With these rights nothing is refused, each of them is used, and those that the page calls dispensable are."""

import os
import re
import subprocess

import interop
from interop import until

DOCUMENT = os.path.join(interop.TESTS, "..", "docs", "redis.md")
OWNER = "f4a1c3f2-5a1d-4c39-9e4f-0d1f6c1b7a55:1"

LAYOUTS = {
    "string": (),
    "hash": ("mode = hash",),
    "redisson": ("mode = hash", "dialect = redisson"),
}


def read_rights():
    """{word: rights} of the block whose lines are "word +right …"."""
    with open(DOCUMENT, encoding="utf-8") as file:
        rows = re.findall(r"^    ([a-z ]+?) +(\+[a-z+|& ]+)$", file.read(), re.MULTILINE)
    return {word: set(rights.split()) for word, rights in rows}


def read_patterns(layout):
    """The words ~… and &… of the ACL line of that layout, as it stands in the document."""
    with open(DOCUMENT, encoding="utf-8") as file:
        lines = re.findall(r"^    ACL SETUSER .*$", file.read(), re.MULTILINE)
    (line,) = [line for line in lines if ("&redisson" in line) == (layout == "redisson")]
    return [word for word in line.split() if word[0] in "~&"]


RIGHTS = read_rights()
DISPENSABLE = RIGHTS["connection"] | RIGHTS["waiting"] - {"+unsubscribe"}


class Cases:
    server_settings = ("user=locks", "password=secret")
    core_settings = ("close_timeout = 1s", "renew_every = 200ms")  # long before it has to
    layout = atomicity = ""

    def setUp(self):
        super().setUp()
        self.rights, self.now = set(), set()
        for word in ("connection", "waiting", "looking", self.atomicity, self.layout):
            self.rights |= RIGHTS[word]
        self.rights |= RIGHTS.get("%s %s" % (self.layout, self.atomicity), set())
        self.queued = self.atomicity == "lua" and self.layout != "redisson"
        if self.queued:
            self.rights |= RIGHTS["queue"]
        self.settings = ("username = locks", "password = secret", "atomicity = " + self.atomicity)
        self.settings += LAYOUTS[self.layout]
        self.key = "mortise:" + self.name
        if self.layout == "redisson":
            self.core_settings += ("namespace =",)
            self.key = self.name = "app:" + self.name

    def give(self, rights):
        words = ["reset", "on", ">secret", *read_patterns(self.layout), "-@all", *sorted(rights)]
        self.redis.execute_command("ACL", "SETUSER", "locks", *words)
        self.redis.acl_log_reset()
        self.redis.config_resetstat()

    def refused(self):
        words = {(entry["reason"], entry["object"]) for entry in self.redis.acl_log()}
        return {"+" + name if reason == "command" else reason + " " + name for reason, name in words}

    def used(self):
        """Commands that were called, those of scripts too; subcommands as "client|id"."""
        return set(self.redis.info("commandstats"))

    def command(self, *words):
        done = subprocess.run(
            [os.environ["MORTISE_COMMAND"], words[0], "-C", self.config(), *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def break_connections(self):
        for client in self.redis.client_list():
            if client["user"] == "locks":
                self.redis.client_kill_filter(_id=client["id"])

    def nobody_listens(self):
        """A client keeps its inbox for as long as the connection: one that came back while the others were broken, too."""
        if self.queued:
            self.break_connections()
        return not self.redis.execute_command("PUBSUB", "CHANNELS")

    def in_the_queue(self):
        """Longer than to a first refresh; given up. A client that is late leaves no place behind to be removed, so it may take
        several tries until one was."""
        first, second = self.taker(), self.taker()
        self.assertEqual(first.word("acquire", self.name, 0, 20000), "OK")
        for _ in range(10):
            second.begin("acquire", self.name, 3000, 300)
            if "+subscribe" in self.now:
                until(lambda: "cmdstat_lset" in self.used(), "a refresh")
            self.assertEqual(second.answer().split()[0], "TIMEDOUT")
            if not {"+subscribe", "+lrem"} <= self.now or "cmdstat_lrem" in self.used():
                break
        self.assertEqual(first.word("release"), "OK")

    def one_by_one(self):
        first, second = self.taker(), self.taker()
        self.assertEqual(first.word("acquire", self.name, 0, 20000), "OK")
        until(lambda: first.renewals() >= 2, "renewals")
        self.assertEqual(second.word("acquire", self.name, 0, 400), "BUSY")
        second.begin("acquire", self.name, 20000, 20000)
        if "+subscribe" in self.now:
            self.waiter_is_subscribed()
        else:
            until(lambda: "+subscribe" in self.refused(), "its try to subscribe")
        self.assertEqual(first.word("release"), "OK")
        token = second.answer().split()
        self.assertEqual(token[0], "OK")
        self.assertEqual(second.numbers("inspect", self.name)[0], 1)
        self.assertIn(self.name, self.command("list"))
        self.assertEqual(first.word("ping"), "OK")
        self.command("break", self.name, "--token", token[1])
        self.assertEqual(second.word("release"), "LOST")
        self.assertEqual(first.word("acquire", self.name, 5000, 20000), "OK")
        self.assertEqual(self.redis.delete(self.key), 1)
        until(lambda: first.word("state") == "LOST", "that it is gone")
        self.assertEqual(first.word("release"), "LOST")

    def in_common(self):
        first, second = self.taker(), self.taker()
        self.assertEqual(first.word("acquire", self.name, 0, 20000, OWNER), "OK")
        self.assertEqual(second.word("acquire", self.name, 0, 20000, OWNER), "OK")
        until(lambda: first.renewals() >= 2, "renewals")
        self.assertEqual(first.word("release"), "OK")
        self.assertEqual(first.word("acquire", self.name, 20000, 200, OWNER, "no_renew"), "OK")
        until(lambda: first.word("state") == "LOST", "its end")
        self.assertEqual(second.word("acquire", self.name, 0, 20000, OWNER), "OK")
        self.assertEqual(second.word("release"), "OK")
        self.assertEqual(second.word("release"), "OK")

    def over_a_broken_connection(self):
        taker = self.taker()
        self.assertEqual(taker.word("acquire", self.name, 5000, 20000), "OK")
        self.break_connections()
        self.assertEqual(taker.word("release"), "OK")
        self.assertEqual(taker.word("acquire", self.name, 5000, 20000), "OK")
        self.assertEqual(taker.word("release"), "OK")

    def use(self, rights):
        """All that a client can ask for, as one who has these rights."""
        self.now = rights
        self.give(rights)
        self.one_by_one()
        if self.queued:
            self.in_the_queue()
        if self.layout != "string":
            self.in_common()
        self.over_a_broken_connection()

    def test_they_are_enough_and_all_are_used(self):
        self.use(self.rights)
        until(self.nobody_listens, "the end of subscriptions")
        self.assertEqual(self.refused(), set())
        used = self.used()
        unused = {right for right in self.rights if "cmdstat_" + right[1:] not in used}
        kept = {"+unsubscribe"} if self.queued else set()  # a client keeps its inbox
        self.assertEqual(unused - DISPENSABLE - kept, set())

    def in_shares(self):
        """Holders who share; one that ends by itself, one that is broken, one that was exclusive."""
        first, second = self.taker(), self.taker()
        share = (self.name, 0, 20000, "shared", "permits=2")
        self.assertEqual(first.word("acquire", *share), "OK")
        self.assertEqual(second.word("acquire", *share), "OK")
        self.assertEqual(self.taker().word("acquire", *share), "BUSY")
        until(lambda: first.renewals() >= 2, "renewals")
        self.assertEqual(second.word("release"), "OK")
        self.assertEqual(second.word("acquire", self.name, 0, 200, "shared", "permits=2", "no_renew"), "OK")
        until(lambda: second.word("state") == "LOST", "its end")
        until(lambda: self.taker().word("acquire", *share) == "OK", "its permit")
        self.assertIn(self.name, self.command("list"))
        self.command("status", self.name)
        self.assertEqual(first.word("release"), "OK")
        until(lambda: second.word("release") == "LOST", "its release")
        self.redis.delete(self.key)
        until(lambda: first.word("acquire", self.name, 0, 20000) == "OK", "it is free")
        second.begin("acquire", self.name, 20000, 20000, "shared")
        until(lambda: "cmdstat_rpush" in self.used(), "a place")
        self.assertEqual(first.word("downgrade"), "OK")
        token = second.answer().split()
        self.assertEqual(token[0], "OK")
        writer = self.taker()
        writer.begin("acquire", self.name, 20000, 20000)
        until(lambda: self.redis.llen("{%s}:mortise:queue" % self.key) == 1, "the place of a writer")
        self.assertEqual(self.taker().word("acquire", self.name, 0, 20000, "shared"), "BUSY")
        self.command("break", self.name, "--token", token[1])
        self.assertEqual(second.word("release"), "LOST")
        self.assertEqual(first.word("release"), "OK")
        self.assertEqual(writer.answer().split()[0], "OK")
        self.assertEqual(writer.word("release"), "OK")

    def test_shared_locks(self):
        if not self.queued:
            return
        self.now = self.rights | RIGHTS["shared"]
        self.give(self.now)
        self.in_shares()
        self.assertEqual(self.refused(), set())
        unused = {right for right in RIGHTS["shared"] if "cmdstat_" + right[1:] not in self.used()}
        self.assertEqual(unused, {"+getrange"} if self.layout == "hash" else set())

    def test_some_can_be_done_without(self):
        self.use(self.rights - DISPENSABLE)
        self.assertEqual(self.refused(), DISPENSABLE - {"+client|kill"})  # it does not know whom
        self.use(self.rights - {"+client|kill"})
        self.assertEqual(self.refused(), {"+client|kill"})


for word, way in ("string", "lua"), ("hash", "lua"), ("redisson", "lua"), ("string", "watch"):
    name = "%s_%s" % (word.capitalize(), way)
    globals()[name] = type(name, (Cases, interop.Case), {"layout": word, "atomicity": way})

if __name__ == "__main__":
    interop.main()
