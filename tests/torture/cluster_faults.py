"""The faults of a torture run on a Redis Cluster (servers/redis.sh): besides those that hit processes, a replica takes over, and the
slots of the fighters' names go to other masters. The members 1 to N are the first masters, N+1 to 2N their replicas."""
import time

from arena import PATIENCE_S, Failure
from server_faults import ServerFaults


class ClusterFaults(ServerFaults):
    def __init__(self, server, jump_s):
        super().__init__(server, jump_s)
        self.usurped, self.times_usurped, self.moves = [], 0, []

    # ---- what the nodes say --------------------------------------------------------------------------

    def masters(self):
        return int(self.server.values["CLUSTER"])

    def port(self, member):
        return self.server.values[f"PORT{member if member > 1 else ''}"]

    def say(self, member, *words):
        """Must succeed."""
        said = self.server.ask(member, *words).strip()
        if said.startswith(("ERR", "CLUSTERDOWN", "MOVED", "IOERR")):
            raise Failure(f"node {member}: {' '.join(words)}: {said}")
        return said

    def role(self, member):
        return self.say(member, "role").split()

    def pair(self, member):
        """The master of this member's group, and its replica."""
        first = (member - 1) % self.masters() + 1
        second = first + self.masters()
        return (first, second) if self.role(first)[0] == "master" else (second, first)

    def now_masters(self):
        if self.server.count == self.masters():
            return list(range(1, self.masters() + 1))
        return [self.pair(member)[0] for member in range(1, self.masters() + 1)]

    def node_id(self, member):
        return self.say(member, "cluster", "myid")

    def owner(self, slot, masters):
        """The master that serves the slot, as it says itself."""
        for member in masters:
            for line in self.say(member, "cluster", "nodes").splitlines():
                words = line.split()
                if "myself" in words[2] and any(self.contains(text, slot) for text in words[8:]):
                    return member
        raise Failure(f"nobody serves slot {slot}")

    @staticmethod
    def contains(text, slot):
        first, _, last = text.partition("-")
        return first.isdigit() and int(first) <= slot <= int(last or first)

    # ---- a replica takes over ------------------------------------------------------------------------

    def possible(self, fault):
        if fault == "server-takeover":  # a replica that has not followed since its own start knows nothing
            return all(self.role(self.pair(member)[1])[3:4] == ["connected"] for member in range(1, self.masters() + 1))
        return super().possible(fault)

    def take_over(self, replica):
        self.say(replica, "cluster", "failover", "takeover")
        give_up = time.monotonic() + PATIENCE_S
        while self.role(replica)[0] != "master":
            if time.monotonic() > give_up:
                raise Failure(f"node {replica} does not take over")
            time.sleep(0.01)

    def begin_takeover(self, members):
        """Killed or stopped in turn, whoever is the master."""
        self.times_usurped += 1
        master, replica = self.pair(members[0])
        self.usurped = [master]
        self.server.each("kill" if self.times_usurped % 2 else "freeze", self.usurped)
        self.take_over(replica)

    def end_takeover(self, members):
        if self.times_usurped % 2:
            self.start(members)
        else:
            self.server.each("thaw", self.usurped)

    def begin_failover(self, _members):
        """No replica hears anything new, …"""
        self.failed_over = True
        for member in range(1, self.masters() + 1):
            self.say(member + self.masters(), "config", "set", "masterauth", "nobody")
            self.say(member, "client", "kill", "type", "replica")

    def end_failover(self, _members):
        """… and all are masters. Those before them come back, and are replicas."""
        for member in range(1, self.masters() + 1):
            self.server.do("kill", f"only={member}")
            self.take_over(member + self.masters())
        self.server.do("start")

    # ---- slots move ------------------------------------------------------------------------------------

    def begin_reshard(self, _members):
        """The slot of each name is on its way to the next master, with about half of its keys."""
        masters = self.now_masters()
        ids = {member: self.node_id(member) for member in masters}
        slots = {int(self.say(1 if 1 in masters else masters[0], "cluster", "keyslot", f"mortise:name{number}"))
                 for number in range(self.server.names)}
        for slot in sorted(slots):
            old = self.owner(slot, masters)
            new = masters[(masters.index(old) + 1) % len(masters)]
            self.say(new, "cluster", "setslot", str(slot), "importing", ids[old])
            self.say(old, "cluster", "setslot", str(slot), "migrating", ids[new])
            self.moves.append((slot, old, new, ids[new]))
            self.move_keys(slot, old, new, half=True)

    def end_reshard(self, _members):
        for slot, old, new, new_id in self.moves:
            give_up = time.monotonic() + PATIENCE_S
            while self.move_keys(slot, old, new):
                if time.monotonic() > give_up:
                    raise Failure(f"slot {slot} has new keys for ever")
            self.say(new, "cluster", "setslot", str(slot), "node", new_id)
            self.say(old, "cluster", "setslot", str(slot), "node", new_id)
        self.moves = []

    def move_keys(self, slot, old, new, half=False):
        """Returns how many there were. One that expires meanwhile is none."""
        keys = self.say(old, "cluster", "getkeysinslot", str(slot), "100").split()
        if half:
            keys = keys[::2]
        if keys:
            self.say(old, "migrate", "127.0.0.1", self.port(new), "", "0", "5000", "keys", *keys)
        return len(keys)
