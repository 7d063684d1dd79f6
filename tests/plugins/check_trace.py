#!/usr/bin/env python3
"""check_trace.py [--killed] FILE… - verifies, from the traces of one host, that no two leases of a name were held at one
instant (except leases of one owner, and shared ones), that tokens grew in the order of the holds, that each lease has
one end, and that no event is missing. --killed: clients may have ended without an event. Prints what it checked."""
import collections
import json
import sys

BEGINS = ('granted', 'handed-over', 'joined')


def read(paths):
    for path in paths:
        with open(path, encoding='utf-8') as lines:
            for number, line in enumerate(lines, 1):
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise SystemExit(f'{path}:{number}: not JSON: {error}: {line!r}')
                event['where'] = f'{path}:{number}'
                yield event


def name_of(event):
    return event.get('name_hex') or event['name'].encode().hex()


def same_owner(hold, other):
    return hold['owner'] is not None and hold['owner'] == other['owner']


class History:
    def __init__(self):
        self.faults = []
        self.holds = collections.defaultdict(list)  # by name
        self.open = {}  # by client and lease
        self.clients = {}
        self.counts = collections.Counter()

    def fault(self, text):
        self.faults.append(text)

    def take(self, event):
        kind, client = event['event'], event['client']
        if kind == 'opened':
            self.clients[client] = 'open'
        elif kind == 'closed':
            self.clients[client] = 'closed'
            if event['events'] != self.counts[client]:
                self.fault(f"{event['where']}: {event['events']} events were written, {self.counts[client]} are here")
        elif kind == 'dropped':
            self.fault(f"{event['where']}: {event['count']} events were dropped")
        else:
            self.counts[client] += 1
            self.take_event(kind, (client, event.get('lease')), event)

    def take_event(self, kind, key, event):
        hold = self.open.get(key)
        if kind in BEGINS:
            if hold:
                self.fault(f"{event['where']}: lease {key} began twice")
            hold = {'from': event['at_ns'], 'to': event['deadline_ns'], 'token': event.get('token', 0),
                    'owner': event.get('owner'), 'grant': event['grant'], 'where': event['where'],
                    'shared': event['at_ns'] if event.get('mode') == 'shared' else float('inf')}
            self.open[key] = hold
            self.holds[name_of(event)].append(hold)
        elif kind == 'renewed' and hold:
            hold['to'] = event['deadline_ns']
        elif kind == 'downgraded' and hold:
            hold['shared'] = min(hold['shared'], event['at_ns'])
        elif kind in ('lost', 'released'):
            if not hold:
                self.fault(f"{event['where']}: {kind}, but no such lease")
            else:
                hold['to'] = min(hold['to'], event['at_ns'])
                if kind == 'released':
                    del self.open[key]

    def check_name(self, name, holds):
        holds.sort(key=lambda hold: hold['from'])
        active, before = [], []
        for hold in holds:
            active = [other for other in active if other['to'] > hold['from']]
            for other in active:
                both_read = max(hold['shared'], other['shared']) <= hold['from']
                if not both_read and not same_owner(hold, other):
                    self.fault(f"{hold['where']}: {bytes.fromhex(name)!r} was held by {other['where']} until "
                               f"{other['to']}, and by another from {hold['from']}")
                    break
            # readers that ask at the same time may be told in any order
            reads = hold['shared'] <= hold['from']
            for other in before:
                if (other['grant'] != hold['grant'] and not same_owner(hold, other) and
                        not (reads and other['shared'] <= other['from']) and 0 < hold['token'] <= other['token']):
                    self.fault(f"{hold['where']}: token {hold['token']} after {other['token']}")
            active.append(hold)
            # the largest of each kind decides
            before = [max((other for other in (*before, hold) if (other['shared'] <= other['from']) == kind),
                          key=lambda other: other['token'], default=None) for kind in (False, True)]
            before = [other for other in before if other]

    def check(self, killed):
        for name, holds in self.holds.items():
            self.check_name(name, holds)
        for client, state in self.clients.items():
            if state != 'closed' and not killed:
                self.fault(f'client {client} did not close')
        for key in self.open:
            if not killed:
                self.fault(f'lease {key} came to no end')


def main():
    paths = [path for path in sys.argv[1:] if path != '--killed']
    history = History()
    # a client's lines are in order; those of several need not be
    for event in read(paths):
        history.take(event)
    history.check('--killed' in sys.argv)
    holds = sum(len(holds) for holds in history.holds.values())
    print(f'{len(history.clients)} clients, {sum(history.counts.values())} events, {holds} holds of '
          f'{len(history.holds)} names: {len(history.faults)} faults')
    for fault in history.faults[:10000]:
        print(fault, file=sys.stderr)
    sys.exit(1 if history.faults else 0)


main()
