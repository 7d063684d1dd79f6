/* protocol.h - how the migrate plugin moves a fleet from one backend to another, with no instant at which two holders are
 * possible: the protocol, and for each of its steps what happens if a reply is lost there, a process stops there, a server
 * restarts there, or a caller gives up there. tests/model/migrate.pml is a model of registers, presences and steps, which
 * spin checks. internal.h says which file does what. migration.h has the names and texts, and what the command that takes
 * the steps must do.
 *
 * 1. PHASES
 *
 *   old    a client uses only `from`          old and both meet on `from`
 *   both   `from`, then `to`                  both and new meet on `to`
 *   new    only `to`                          old and new would meet nowhere: they must never run together
 *
 * A fleet goes old → both → new with a rolling restart for each change of phase, and back in the same way. Two things keep
 * old and new apart, whatever is restarted when: a *register* on each side says which phases may use that side; a
 * *presence* on each side, which is a lease, says which clients do.
 *
 *   stage   register of `from`   register of `to`     who may run
 *     1       {old, both}          {both}             old, both       (also if the registers are absent)
 *     1.5     {both}               {both}             both            (in the middle of a step)
 *     2       {both}               {both, new}        both, new
 *     3       {}                   {new}              new             `from` can be removed
 *
 * 2. THE REGISTER is a record (OP_READ, OP_WRITE) on each side, under the namespace of the locks. It has the phases that
 * may use that side, and a floor: every token that is given on that side from then on is above it (see 6). Its version
 * makes a step safe against another operator's step.
 *
 *   A reply to a write is lost: the command reads the register. If it has what was written, under another version, the
 *   write is done; but a closing (5) is written again. If it has something else, another operator was at work, and the
 *   step ends.
 *   A register is absent: stage 1. So a client of phase new is refused if nobody has taken a step: a phase cannot be
 *   skipped.
 *   The server loses its records (Redis without persistence, or restored from a backup that was made in stage 1): `to` then
 *   admits {both}, and new clients are refused until the operator acts, which is safe. `from` then admits {old, both} while
 *   new clients may run. Therefore an old client also reads the register of the other side, if it can reach that side, and
 *   refuses if that admits new. A client that cannot reach it is admitted: this hole remains, and docs/promises.md names it.
 *   A record is only as durable as its server.
 *   The server has older records (restored from a backup that was made in stage 2 or 3, or a failover lost the step's
 *   write): if the fleet has gone back to stage 1 since, `to` admits new again while `from` admits old. Old clients that
 *   register then, and can reach `to`, are refused; those that are registered go on, and new clients beside them are
 *   admitted. So new clients must not run before such a server is back in service (docs/migrating.md).
 *   A register cannot be parsed: it admits nobody. If an old client finds such a register on `to`, it refuses too, because the
 *   register may admit new.
 *   A side has no records (Redlock: compare-and-write needs consensus): its register is on the other side, under a name of
 *   its own, and a client that needs this register needs that side too. If `from` has no records, a client of phase old gets
 *   no lock while `to` is unreachable (UNREACHABLE), or if the module of `to` cannot be opened (CONFIG, with the reason; it
 *   is not opened again). (It only matters that a presence exists before the register is read, and that the register is
 *   written before presences are listed; it does not matter where the two are.) If `to` is the side without records, `from`
 *   cannot be removed in stage 3. If neither side has records: refused (CONFIG).
 *
 * 3. THE PRESENCE of a client is a lock on each side that its phase uses. It has a name of its own (phase and client id),
 * the client's note (host, pid, program), and its own ttl (`presence`, 30 s). The plugin renews it together with other
 * requests. Its deadline D is computed like that of any lease: from before the request was first sent, less the margin
 * (R1); the server ends it later than that. No grant's deadline is later than D: what acquire and renew report is
 * shortened to D. Therefore:
 *
 *   (a) If a presence does not exist in the server, its client holds nothing, and will hold nothing until it has
 *       registered again.
 *
 *   The client is killed: its presence expires with its ttl, as its locks do, without any clean-up.
 *   The client is stopped: D passes; its leases are LOST at its first check (R2). When it continues, the core releases their
 *   claims, because the servers keep these until the end of their ttl. If a grant arrives then, its deadline has passed, so it
 *   is released too. Before its next grant, the client registers again (4). A request that was sent before D passed may be
 *   answered after the client has registered again: it waited in a driver's queue, or its reply was lost and the core repeats
 *   it. Such a grant is released and requested again: the registers may not have been read since, and steps in between may
 *   have raised the floor above its token.
 *   A renewal's reply is lost: it is repeated; until it is answered, D does not move, nor do the grants: SUSPECT.
 *   The renewal says LOST (an operator broke the presence, or the server forgot it): all grants are LOST. Their renewals
 *   are answered so, their claims are released, and the client registers again.
 *   It is renewed late, after D has passed: the claim in the server may have existed all the time, or may have ended and
 *   come back. The client is no longer registered, and reads the registers again (4).
 *   Phase both: two presences; D is the earlier deadline. When one of them has ended, or its deadline has passed, the other one is
 *   renewed only while a call waits to register. So a client that has nothing to do is on one side alone for a ttl at most (9).
 *   The client closes: it releases its locks first, then the presences (driver.h: `leave`), and once more what it has
 *   dropped (claim.c). If it cannot, they expire with their ttl, and the close reports that.
 *   A refused client releases its presence and gets no answer: before it takes another one, it releases the first one
 *   again, because otherwise it would block itself.
 *
 * 4. TO REGISTER (at the first request, and whenever D has passed), a client
 *
 *   (i)   takes the presence, on each side that the phase uses;
 *   (ii)  then reads the register, on each of these sides;
 *   (iii) if the phase is not admitted: releases the presences and refuses (CONFIG: which side, which phases it admits, and
 *         which clients one would meet: host and pid of a presence of the other phase);
 *   (iv)  if D has passed meanwhile: starts again at (i). Otherwise it is registered until D passes.
 *
 * Presence before register, and in a step register before presences: so one of the two sees the other. This needs a
 * guarantee: a read that is started after a write was answered sees that write, whoever made it and, for a register that is
 * kept on the other side, on whichever side. (driver.h promises it for READ and LIST; ZooKeeper's come behind a write.)
 *
 *   The client stops between (i) and (ii) for long: its presence may have ended, and the step may be complete; the read
 *   shows it. Between (ii) and (iv): D has passed. Later: (a).
 *   A reply of (i) is lost: the request is repeated under the same grant id. If the late request is executed when nobody
 *   waits for it, there is a presence without a client, which delays a step for its ttl.
 *   A side cannot be reached: UNREACHABLE, which names the side: a client of phase both cannot work with half.
 *   A refused client tries again when its application asks again: the plugin does not remember a refusal. It remembers only the
 *   clients that its message names, for five seconds.
 *   A hundred clients of random phases register in one second while steps are taken: each one behaves as above.
 *
 * 5. A STEP closes one side's register to a phase, waits until (a) holds for all clients of that phase, and then opens the
 * other side's register. `advance` takes one step; the operator may die, or be replaced, between any two actions.
 *
 *   1 → 2   read both registers, with their versions f and t
 *           write `from` := {both}, if its version is still f; *always*, even if it is already {both}
 *           wait until no presence of phase old is on `from` (nor one of another migration: 9)
 *           take the floor (6), from both sides
 *           write `to` := {both, new}, if its version is still t
 *   2 → 1   the same with the sides exchanged: `to` := {both}; no presence of phase new on `to`; `from` := {old, both}
 *   2 → 3   `to` := {new}; no presence of phase both on `to`; then `from` := {}, and `from` can be removed
 *   3 → 2   `from` := {both}, so it must be reachable again; `to` := {both, new}
 *
 * Why it is safe. Only two openings matter: {…, new} on `to`, and {old, …} on `from`. An operator writes each of them only
 * after closing the other side, and only if the opened register was not written since before that. The same operator must
 * have done both: if a reply to a closing was lost, a closed register under another version may be another operator's, from
 * before this operator's reading of the other side. So it is written again, until the answer is OK. (An opening found in
 * this way is fine: its writer has done what this step is for.)
 * Suppose that both were open at the end. Then operator P has closed `from` at p1 and opened `to` at p2 > p1, and operator
 * Q has closed `to` at q1 and opened `from` at q2 > q1. `to` stayed open, so q1 was before p2. P had read its version
 * before p1, and it was still valid at p2, so q1 < p1. For `from` likewise p1 < q1: a contradiction. This is why a register
 * that is already closed is written again.
 *
 *   The operator stops or dies anywhere: the registers are in a state of the table, or in stage 1.5, from where `advance`
 *   continues in either direction. Nobody has to clean up.
 *   Clients of the closed phase come again and again, are refused, and have a presence each time: the step waits only for
 *   those that the first list after the closing finds, by their grants. A client that takes a presence later reads the
 *   closed register; a client that lost the listed presence holds nothing, and reads that register before it holds
 *   anything.
 *   The presences do not end (a client that nobody restarts): `advance` names them and waits, or gives up, and the way back
 *   is open.
 *   A server restarts while a step waits: if it has its records, the step continues. Clients learn only at their next
 *   renewal that a server has forgotten their presences. So the step waits for one presence ttl more if the server is not
 *   the process that it was when the step began (PING tells). See 2 for what a server that forgets cannot promise.
 *
 * 6. TOKENS grow for each name over every mix of phases, and on the way back. Two things achieve this:
 *
 *   In phase both a grant has a token that is above all tokens that either side gave for that name before, and that each
 *   side has as its last one: x from `from` (requested with the floor T), y from `to` (requested with the floor x).
 *     y = x: the token is x. y > x: x may be less than what `to` gave before. Both are released, and everything starts
 *     again with a T above y. (To raise only `from`, it would have to be released and requested again while `to` is held, and
 *     a client that queues there would get it. Also, x' > y would follow when the clocks go on: two tokens for one grant.)
 *   T follows the servers' clocks, which the presences' tokens show, and is ten seconds ahead of them, so nearly always
 *   y = x, and a second try is rare: plugins/migrate/floor.c. A floor decides no deadline. It contains no client's clock,
 *   because a clock that is wrong by a day would put tokens beyond the floors of a step.
 *   Leases of one owner share a hold and its token: they are requested with T only in a second try.
 *
 *   For names that nobody acquires in phase both there are the floors in the registers. After the presences have ended, a
 *   step takes one token of each side (with a lock of its own), adds a day of microseconds to the largest of these tokens
 *   and of both floors, and writes the sum as the floor of the side that it opens. Clients of phases old and new send their
 *   side's floor with every acquire; clients of phase both send the larger one.
 *   No earlier token is above such a floor. A server with a clock gives what its clock says, or one more than the name's last
 *   token, or the floor that it is asked for. That floor is a register's floor; or T, which is at most a minute above the
 *   clocks, or half a day above the count of a server on sessions; or, after a try that was too low, the name's last token
 *   plus a hundredth of the time for which the client has held `from`. If a name is above the clock, because of the floors of
 *   quick steps (a day each), its tokens grow by a hundredth of what the clock does. So the name is a day above the last floor
 *   after a hundred days, and the floor of the next step, a day above both that floor and the clock, is above the name. The
 *   step's own token shows the count of a server on sessions, over all names.
 *   The token of both sides is needed: their clocks may differ by days, and tokens of the one side may be ahead of the
 *   other side's clock.
 *
 * 7. PHASE BOTH, op by op. In old and new an op goes to its side unchanged, except for floor and deadline.
 *
 *   acquire   always `from` first, then `to`, so two clients never wait for each other.
 *     `from` BUSY        BUSY, with its hint and holder; nothing is held. The core watches `from`.
 *     `from` granted     `to` is requested. Meanwhile the claim on `from` is renewed after each third of the ttl.
 *     `to` BUSY, a try   `from` is released. Sure: BUSY. Not sure: INDETERMINATE, and the core releases until it is.
 *     `to` BUSY          the op stays here, as with a driver that has a queue: `to` is watched, and requested again on news
 *                        or at the hint. (A BUSY to the core would lose the claim on `from`, or leave it without an owner.)
 *     `to` UNREACHABLE   `from` is released; then UNREACHABLE, which names `to`; not sure: INDETERMINATE.
 *     a reply is lost, of either   INDETERMINATE. The core repeats the op under the same grant id, and both sides get REPEAT
 *                        and the instant of the first sending; or it releases, on both sides.
 *     `from` LOST while waiting for `to`   `to` is canceled, and released unless that is certain; everything starts again.
 *     starting again     uses other grant ids on the sides: a side may remember what was released, and undo it once more.
 *                        The claim (claim.c) knows these grant ids; the core knows its own.
 *     a reply to a release is lost   INDETERMINATE, and the core's next request begins with that release: the late request
 *                        would otherwise remove what is requested again under the same grant id.
 *     repeated by the core, `from` was lost, `to` exists (y < x)   everything starts again.
 *     canceled           at once: CANCELED if nothing was sent to either side, else INDETERMINATE.
 *     both granted       from = the earlier sending; good until the earliest of both claims' ends and D. If that has
 *                        passed, the core releases.
 *   renew     both at once. Both OK: as above, shortened to D. Either one LOST or NOTOWNER: the other is released, LOST.
 *             Either one without an answer: that failure, so SUSPECT, even if the other side was extended.
 *             Either one does not take this ttl (INVALID), and the other was extended: INDETERMINATE. INVALID only if both
 *             say so.
 *             The presence is renewed with them if that is due soon; while it is overdue: UNREACHABLE, so SUSPECT.
 *   release   both at once (this client's next request to either side comes after it, so it does not wait for a renewal that
 *             is out; that one's later answers are ignored, and it is INDETERMINATE), both even if one fails. OK if the
 *             claim existed on both. LOST if it was missing on one or both, because another holder may have
 *             overlapped then. If either one fails, the answer is that failure: INDETERMINATE goes before all others, and failures that the core
 *             repeats go before final ones. `sure` if both are. If one side has answered, but is not sure, and the other side
 *             refuses for good, the refusal is final, and what may still come on the first side is left to its ttl. A repeat
 *             releases what is left. If a side had lost the claim, and no release of ours explains that, or if another has
 *             it there, the repeat says NOTOWNER, because after a lost reply the core takes LOST for OK.
 *             By token (break): on both; OK if it existed on either. Of a dead process: OK if it existed on either; a failure
 *             after one was found is INDETERMINATE. A final failure of one side is the answer only after the other side has
 *             been asked for all tries.
 *   inspect   both at once. The holder is the one on `to`, if there is one (it has `from` too, or is of phase new), else the
 *             one on `from`. If `to` does not answer, it fails; if `from` does not, only if nobody holds the name on `to`.
 *   list      `to`, then `from`: the names of both, in byte order; a name that is on both is listed as inspect reports it. If
 *             either side does not answer, the list fails. The plugin's own names are not listed.
 *   watch     `from`, and `to` while an acquire waits for it.
 *   read, write   none for applications; the registers belong to the plugin.
 *   ping      both; the line names both.
 *
 *   Out of memory in the middle: as if `to` could not be reached.
 *   The capabilities are those that both sides have (session: if either has it). Not fair, because a caller that starts
 *   again has lost its place.
 *
 * 8. NAMES. If the config gives no namespace, each side has its own driver's. So clients of phase old mean the same locks as
 * clients without the plugin, and clients of phase new the same as clients that no longer use it. Clients without the plugin
 * have no presence: they must have ended before the first step, and must not return before the last one. No register can
 * see them.
 *
 * 9. TWO MIGRATIONS may have a server S in common: the `to` of the first one, A → S, is the `from` of the second one, S → C. The
 * names of registers and presences follow the role of a side, so S has one register of each. A client reads that of its own
 * migration, and is seen by its own presence:
 *
 *   on S        new and both of A → S, old and both of S → C: they all meet there
 *   not on S    old of A → S (on A alone), new of S → C (on C alone): they meet none of those that are only on S
 *
 * To S → C, the clients of A → S are like clients of phase old. So the step 1 → 2 of S → C closes S to them too, and waits for
 * them; the step 2 → 1 of A → S does the same with those of S → C. A presence of phase new on `from`, or of phase old on `to`, is
 * another migration's. A client of phase both has presences of one name on both sides of its migration. The other side of the
 * step is listed after S. If it does not list a presence of phase both that is on S, that presence is another migration's. (Or
 * its client has not taken the other presence yet, or one of the two has ended before the other: then it counts as another
 * migration's until that is over.) No operator reaches all three servers. So one migration must be at its end before the other
 * one begins: A → S at stage 3, or S → C with clients of phase old only. A step that opens a register to a phase (all but 2 → 3)
 * reads the other role's registers after its own:
 *
 *   S → C   The register of `to` on S admits both: A → S is not at its end; refused. (Between 2 and 3 it
 *           does not, but clients of phase both may still run. They are waited for. An absent one is not counted.)
 *           1 → 2: after S is closed to old, writes {} to the register of `to` on S, if that was ever written (*always*, even if
 *           it is {} already), or such a presence stays there. (Not otherwise: S may be the `to` of a config for the
 *           way back.) Waits for presences of old and of new on S, and for those of both that C does not list.
 *   A → S   The register of `from` on S does not admit old: S → C has gone further; refused. ({} may also be what the next line
 *           has written. But then the register of `to` on S is not {}, which only S → C writes.)
 *           2 → 1: after S is closed to new, writes {} to the register of `from` on S, if that was ever written, or such a
 *           presence stays there. (Not otherwise: a later migration begins with an absent one.) Waits for presences of new and of
 *           old on S, and for those of both that A does not list.
 *
 * Why an operator P of A → S cannot open S when an operator Q of S → C has closed it: P reads the version of the register of `to`,
 * and then that of `from`, which must admit old. Q closes the latter first, and then writes the register of `to`. If Q has written
 * it before P read its version, P sees what Q has closed. Otherwise both write the same version of it; the later one fails,
 * and its step ends. tests/model/migrate_next.pml is a model of this.
 * But Q does not write a register that was absent. So before it opens, an operator reads the other role's registers on both sides
 * once more; if one has another version than when the step began, the step ends. P then sees that Q has closed S, or Q sees that P
 * has opened it. One case remains: P reads before Q closes S, and writes after Q has read.
 *
 *   A → S never took a step, and none of its clients is on S when Q looks: its register there stays absent, and admits clients of
 *   phase both that come later. They do not meet those of phase new of S → C. (Likewise for those of S → C, after 2 → 1 of A → S.)
 *   Q stops or dies between the two closings: S is closed to old of S → C, and open to new of A → S; they meet. Any `advance` of
 *   S → C continues from there.
 *   A client of A → S is killed: its presence expires, like any other.
 *   The server of S loses its records: the register of `to` is absent; it admits both, not new.
 *   S → C goes back to stage 1: the register of `to` on S stays {} until an operator of A → S opens it.
 *   An operator whose command does not know this section: as if it were not there. So all hosts need one that does.
 *   Tokens: the floor of 1 → 2 is above the floors of both registers on each side. But clients of phase old read no floor of
 *   another migration: they are like clients without the plugin (docs/migrating.md). */
#ifndef MORTISE_MIGRATE_PROTOCOL_H
#define MORTISE_MIGRATE_PROTOCOL_H

#include "migration.h" /* names, texts and steps, as numbers */

#endif
