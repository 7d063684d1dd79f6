/* protocol.h - how the migrate plugin moves a fleet from one backend to another with no instant at which two holders
 * are possible: the protocol, and at each of its steps what happens if a reply is lost there, a process stops
 * there, a server restarts there, or somebody gives up there. tests/model/migrate.pml is a model of registers, presences
 * and steps, and is checked. internal.h says which file does what; migration.h has the names and texts, and what the command
 * that takes the steps is to do.
 *
 * 1. PHASES
 *
 *   old    a client uses `from` only          old and both meet on `from`
 *   both   `from`, then `to`                  both and new meet on `to`
 *   new    `to` only                          old and new would meet nowhere: they must never be there together
 *
 * A fleet goes old → both → new by a rolling restart for each change of phase, and back the same way. Two things keep
 * old and new apart, whatever is restarted when: a *register* on each side says which phases may use that side;
 * a *presence* on each side, a lease, says who does.
 *
 *   stage   register of `from`   register of `to`     who may live
 *     1       {old, both}          {both}             old, both       (what absent registers mean)
 *     1.5     {both}               {both}             both            (in the middle of a step)
 *     2       {both}               {both, new}        both, new
 *     3       {}                   {new}              new             `from` may be shut down
 *
 * 2. THE REGISTER is a record (OP_READ, OP_WRITE) on each side, under the namespace of the locks. It holds the phases
 * that may use that side, and a floor: every token that is given on that side from then on is above it (see 6).
 * Its version is what makes a step safe against another operator's.
 *
 *   A reply to a write is lost: the register is read; it is what was written, under a version that is one more: done, or, for
 *   a closing (5), written again. It is something else: somebody else was there, and the step ends.
 *   A register is absent: stage 1. So a client of phase new is refused where nobody has taken a step: a phase
 *   cannot be skipped.
 *   The server loses its records (Redis without persistence, restored from an old backup): `to` says {both}, and
 *   new clients are refused until the operator has looked: fails closed. `from` says {old, both} while new
 *   clients may live: an old client therefore reads the other side's register too, if that side can be reached, and
 *   refuses where new is allowed. One that cannot reach it is let in: that is the hole that remains, and
 *   docs/promises.md has to have it. A record must be as durable as it is asked to be.
 *   A register is not understood: it lets nobody in.
 *   A side keeps no records (Redlock: compare-and-write needs consensus): its register is kept on the other side, under
 * a name of its own, and whoever needs it needs that side too: a client of phase old then does not open while `to` is
 * away. (What matters is only that the presence is there before the register is read, and the register is written before
 * presences are listed; where the two live is all the same.) So `from` may not go in stage 3 where it is `to` that keeps
 * none. Neither side keeps any: refused (CONFIG).
 *
 * 3. THE PRESENCE of a client is a lock on each side that its phase uses, with a name of its own (phase and client id),
 * the client's note (host, pid, program), and a ttl of its own (`presence`, 30 s); the plugin renews it, in the same batch as
 * whatever else is due. Its deadline D counts as that of any lease: from before the request was first sent, less the
 * margin (R1); the server lets it go later than that. No grant's deadline is later than D: what acquire and renew
 * report is shortened to it. So:
 *
 *   (a) A presence that is gone in the server is that of a client that holds nothing and, until it has registered again,
 *       will hold nothing.
 *
 *   The client is killed: its presence ends by its ttl, with its locks, and by nobody's hand.
 *   The client is stopped: D passes; its leases are LOST at its first look (R2). When it goes on, a grant that comes
 *   now is too late by its deadline, and the core gives it back. Before its next grant it registers anew (4).
 *   One that was asked for before D passed and is answered when the presence is there anew (a request that waited in a
 *   driver's queue) is given back and asked for again: the registers may not have been read since.
 *   A renewal's reply is lost: repeated; until it is answered D stays where it is, and all grants with it: SUSPECT.
 *   The renewal says LOST (an operator broke it, the server forgot it): all grants are LOST: renewals of them are
 *   answered so, their claims are released, and the client registers anew.
 *   It is renewed late, after D has passed: the claim in the server may have stood all the time, and so may have gone and
 *   come; who was registered is not any more, and reads again (4).
 *   Both: two presences; D is the earlier.
 *   The client closes: its locks are released first, then the presences (driver.h: `leave`). If that cannot be, they end by
 *   their ttl, and the close says so.
 *   It is given back by one that was refused, and that is not answered: before the client takes another one, it asks it back
 *   again, or it would be in its own way.
 *
 * 4. TO REGISTER (at the first request, and whenever D has passed):
 *
 *   (i)   take the presence, on each side that the phase uses;
 *   (ii)  then read the register, on each of these sides;
 *   (iii) if the phase is not allowed: give the presences back and refuse (CONFIG: which side, which phases it allows, and whom
 *         one would meet: host and pid of a presence of the other phase);
 *   (iv)  if D has passed meanwhile: again from (i). Else registered, until D passes.
 *
 * Presence before register, and in a step register before presences: one of the two sees the other. This needs
 * that a read that is started after a write was answered, whoever's and, for a register that is kept on the other side, on
 * whichever side, sees that write (driver.h promises it of READ and LIST; ZooKeeper's are behind a write).
 *
 *   Stops between (i) and (ii) for long: its presence may be gone, the step taken; the read shows it. Between (ii) and
 *   (iv): D has passed. Later: (a).
 *   A reply of (i) is lost: the same grant id again. The late request is executed when nobody waits: a presence of
 *   nobody, which holds a step up for its ttl.
 *   A side cannot be reached: UNREACHABLE, naming the side: a client of phase both is not half a client.
 *   Whoever is refused tries again when somebody asks again: the plugin does not remember a refusal.
 *   A hundred clients register in one second, of random phases, while steps are taken: each is by itself in the above.
 *
 * 5. A STEP closes one side's register to a phase, waits until (a) holds for all of that phase, and then opens the other
 * side's. `advance` does one step; the operator may die, or be another one, between any two actions.
 *
 *   1 → 2   read both registers, with their versions f and t
 *           write `from` := {both}, if its version is f still; *always*, though it be {both} already
 *           wait until no presence of phase old is on `from`
 *           take the floor (6), of both sides
 *           write `to` := {both, new}, if its version is t still
 *   2 → 1   the same with the sides exchanged: `to` := {both}; no presence of phase new on `to`; `from` := {old, both}
 *   2 → 3   `to` := {new}; no presence of phase both on `to`; then `from` := {}, and `from` may go
 *   3 → 2   `from` := {both}, which must be reachable again; `to` := {both, new}
 *
 * Why it is safe. The only openings that matter are {…, new} on `to` and {old, …} on `from`; each is written only
 * after a writing of the other side by the same operator that closed it, and only if its own register was not written since before
 * that. "By the same": a closing whose answer was lost, and which stands there under the next version, may be another's, from
 * before this one's reading of the other side; it is written again, until one has been answered with OK. (An opening that
 * stands there so will do: whoever wrote it has done what is asked for here.) Were both open at the end, operator P would have closed `from` at p1, opened `to` at p2 > p1, operator Q closed
 * `to` at q1, opened `from` at q2 > q1. `to` stayed open: q1 was before p2; P's version was read before p1 and was good still
 * at p2, so q1 < p1. For `from` likewise p1 < q1. This is why a register that is closed already is written again.
 *
 *   Stops, dies anywhere: the registers are in a state of the table, or in stage 1.5, from where `advance` goes on in either
 *   direction. Nobody has to clean up.
 *   Clients of the phase that is shut out come again and again, are refused, and have a presence each time: only those that
 *   the first look after the closing finds are waited for, by their grants. Whoever takes a presence later reads what was
 *   closed; and who lost the one that was found holds nothing, and reads that too before it holds anything.
 *   The presences do not go (a client that nobody restarted): `advance` names them and waits, or gives up, and the way
 *   back is open.
 *   A server restarts in a wait: with its records it goes on. Presences that a server forgot are LOST to their
 *   clients at their next renewal, but not before: see 2 for what a server that forgets cannot promise; the step
 *   waits for one presence ttl if the server's run is another than when it began (PING tells it).
 *
 * 6. TOKENS grow per name over every mix of phases, and on the way back. Two things do it:
 *
 *   In phase both a grant has a token that is above all that either side gave for that name before, and is what each side
 *   has as its last: x from `from` (asked with the floor T), y from `to` (asked with the floor x).
 *     y = x: the token is x. y > x: x may be less than what `to` gave before. Both are given back, and all begins again with a
 *     T above y. (To raise `from` alone it would have to be given back and asked again while `to` is held; where others
 *     queue there, they have it then. And x' > y again, where clocks go on: two tokens for one grant.)
 *   T follows the servers' clocks by what the presences' tokens say, and is ahead of them by ten seconds, so that y = x nearly always
 *   and the second try is rare: plugins/migrate/floor.c. A floor decides no deadline. No clock of a client is in it: one
 *   that is wrong by a day would put tokens beyond the floors of a step.
 *   Leases of one owner share a hold and its token: they are asked with T in a second try only.
 *
 *   For names that nobody takes in phase both, the floors in the registers: a step takes, after the presences are gone, one token
 *   of each side (a lock of its own), adds a day of microseconds to the largest of these and of both floors, and writes that as
 *   the floor of the side that it opens. Old and new clients give their side's floor with every acquire; both clients the larger.
 *   No token that was given before is above it. A server with a clock gives what that says, or one more than the name's last,
 *   or what it is asked for: a floor; or T, which is a minute above the clocks at most, or half a day above what a server on
 *   sessions has counted to; or, after a try that was too low, what that name had, and a hundredth of the time for which the
 *   client had `from`. A name that is above the clock, by floors of quick steps, a day for each, runs on by a hundredth of what
 *   the clock does: it is a day above the last of them after a hundred days, and the floor of the next step, a day above both
 *   that floor and the clock, is above it. What a server on sessions has counted to, over all names, its token of the step
 *   tells.
 *   Both sides' tokens: the clocks may differ by days, and what the one is ahead by is in tokens of the other.
 *
 * 7. BOTH, op by op. In old and new an op goes to its side as it is but for floor and deadline.
 *
 *   acquire   `from` first, always, then `to`: so two of them never wait for each other.
 *     `from` BUSY        BUSY, with its hint and holder; nothing is held. The core watches `from`.
 *     `from` has it      `to` is asked. As long as that takes, the claim on `from` is renewed, each third of the ttl.
 *     `to` BUSY, a try   `from` is given back. Sure: BUSY. Not sure: INDETERMINATE, and the core releases until it is.
 *     `to` BUSY          the op stays here, as with a driver that has a queue: `to` is watched, and asked again on news or
 *                        at the hint. (A BUSY to the core would lose the claim on `from`, or leave it with nobody.)
 *     `to` UNREACHABLE   `from` is given back; then UNREACHABLE, naming `to`; not sure: INDETERMINATE.
 *     either one's reply lost   INDETERMINATE. The core asks again under the same grant id, both sides get REPEAT and
 *                        the first sending's instant; or it releases, on both sides.
 *     `from` LOST while waiting for `to`   `to` is canceled, and given back if that is not certain; all begins again.
 *     all begins again   under other grant ids on the sides: what was given back a side may remember, and undo once more. The
 *                        claim (claim.c) knows which they are; the core knows its own.
 *     a giving back's reply lost   INDETERMINATE, and what the core asks then begins with giving it back: the late request
 *                        would take what was asked for again under the same grant id.
 *     the core asks again, `from` was lost, `to` stands (y < x)   all begins again.
 *     canceled           at once: CANCELED if nothing was sent to either, else INDETERMINATE.
 *     both               from = the earlier sending; good until the earliest of both claims' ends and D. Passed: the core
 *                        gives it back.
 *   renew     both at once. Both OK: as above, shortened to D. Either LOST or NOTOWNER: the other is released, LOST.
 *             Either without an answer: that failure, so SUSPECT; what the other side was extended by is of no use.
 *             The presence is renewed with them where that is due soon; while it is overdue: UNREACHABLE, so SUSPECT.
 *   release   both at once (what this client asks next on either comes after it), both even if one fails. OK if what was held was
 *             there on both; LOST if either was not, for then somebody may have been beside; a failure of either is the
 *             answer; `sure` if both are. A repeat asks what is left. By token (break): on both, OK if it was on either.
 *   inspect, list, watch   `from`, in phases old and both; inspect, where nobody is there, `to`. The plugin's names are not listed.
 *   read, write   of applications: none; the registers are the plugin's.
 *   ping      both; the line names both.
 *
 *   Out of memory in the middle: as if `to` had not been reached.
 *   The capabilities are those that both sides have (session: either one's); not fair, for who begins again has lost his
 *   place. Neither shared nor permits, in any phase: (6) needs that only one client at a time has a name on `from`. Readers
 *   in phase both would have it together, and come to `to` in another order than to `from`: each one that came later would begin
 *   again, and each second try raises the tokens of the name by a hundredth of the time; a hundred readers that do so
 *   together raise them as fast as the clock, and past the floor of the next step.
 *
 * 8. NAMES. Where the config gives no namespace, each side has its own driver's: so clients of phase old mean the same locks as
 * clients without the plugin, and those of phase new as clients that have done with it. Clients without the plugin
 * have no presence: they must be gone before the first step, and must not come back before the last. No register can see them. */
#ifndef MORTISE_MIGRATE_PROTOCOL_H
#define MORTISE_MIGRATE_PROTOCOL_H

#include "migration.h" /* names, texts and steps, as numbers */

#endif
