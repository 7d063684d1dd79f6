/* beat.c - sends the beats of the session, and notes what their answers prove. See beat.h. */
#include "session.h"

#define AGAIN_MAX 4 /* how often a beat that found no node is repeated at once */
#define FAILURES_MAX 8

static void beat_answered(struct driver *driver, struct request *request);

/* The one place where the state changes. */
static void become(struct beats *beats, enum beat_state state)
{
    beats->state = state;
}

void beats_begin(struct session *session, int64_t now_ns)
{
    struct beats *beats = &session->beats;
    become(beats, BEAT_PLANNED);
    beats->failures = 1;
    pace_begin(&beats->pace, now_ns);
    proof_begin(&beats->proof, now_ns);
}

/* Writes to the node of the session. Makes the node the first time, and if it is gone, and makes its folder if that is
 * missing. */
static void beat(struct driver *driver, int64_t now_ns)
{
    struct beats *beats = &driver->session->beats;
    struct reply_to to = {.answered = beat_answered};
    if (beats->failures > 1 && is_connected(driver))
        send_root(driver, "%sessions");
    const char *folder = "%sessions", *node = driver->client_id;
    bool sent =
        beats->failures == 0
            ? send_set(driver, folder, node, driver->note, driver->note_len, -1, to)
            : send_create(driver, folder, node, driver->note, driver->note_len, ZOO_EPHEMERAL, to);
    become(beats, sent ? BEAT_OUT : BEAT_PLANNED);
    if (sent)
        driver->barrier_call = driver->calls; /* a write of our own, as any barrier */
    pace_sent(&beats->pace, is_connected(driver), session_timeout_ns(driver),
              beats->proof.half_tick_ns, now_ns);
}

/* ---- answers --------------------------------------------------------------------------------------- */

/* Whether the leader executed or refused the write. In both cases it has heard of the session. */
static bool is_written(int rc)
{
    return rc == ZOK || rc == ZNONODE || rc == ZNODEEXISTS || rc == ZNOAUTH;
}

static void note_time(struct session *session, const struct request *request)
{
    if (request->rc != ZOK || request->stat.mtime <= 0)
        return;
    session->servers_ms = request->stat.mtime;
    session->servers_at_ns = request->sent_ns;
}

static void beat_answered(struct driver *driver, struct request *request)
{
    struct session *session = request->mail.session;
    struct beats *beats = &session->beats;
    int64_t now_ns = now_of(driver), deadline_ns = beats->proof.deadline_ns;
    become(beats, BEAT_PLANNED);
    if (!is_written(request->rc) || session != driver->session || !is_connected(driver)) {
        proof_unanswered(&beats->proof, request->sent_ns);
        return;
    }
    note_time(session, request);
    proof_answered(&beats->proof, request->sent_ns, now_ns);
    pace_answered(&beats->pace, driver->held_claims > 0, beats->proof.timeout_ns,
                  beats->proof.half_tick_ns, now_ns);
    if (request->rc == ZNONODE)
        beats->failures += beats->failures < FAILURES_MAX;
    else
        beats->failures = 0;
    if (beats->failures > 0 && beats->failures < AGAIN_MAX)
        pace_again(&beats->pace, now_ns);
    if (beats->proof.deadline_ns != deadline_ns)
        driver->upcalls->proven(driver);
}

/* ---- when ------------------------------------------------------------------------------------------ */

bool beats_are_due(const struct session *session, int64_t now_ns)
{
    return now_ns >= beats_due(session);
}

int64_t beats_due(const struct session *session)
{
    return session->beats.state == BEAT_OUT ? MORTISE_NEVER : pace_due(&session->beats.pace);
}

void beats_turn(struct driver *driver, int64_t now_ns)
{
    if (beats_are_due(driver->session, now_ns))
        beat(driver, now_ns);
}

void beats_connected(struct driver *driver, int64_t now_ns)
{
    struct beats *beats = &driver->session->beats;
    pace_connected(&beats->pace, beats->state == BEAT_OUT, session_timeout_ns(driver), now_ns);
    beats_turn(driver, now_ns);
}

void beats_suspended(struct driver *driver, int64_t now_ns)
{
    pace_suspended(&driver->session->beats.pace, now_ns);
}

static bool may_hurry(const struct driver *driver)
{
    return driver->session != NULL && driver->session->state == SESSION_CONNECTED;
}

void beats_look(struct driver *driver)
{
    int64_t now_ns = now_of(driver);
    if (!may_hurry(driver))
        return;
    driver->session->busy_ns = now_ns;
    pace_look(&driver->session->beats.pace, session_timeout_ns(driver), now_ns);
    beats_turn(driver, now_ns);
}

void beats_need(struct driver *driver)
{
    if (!may_hurry(driver))
        return;
    pace_need(&driver->session->beats.pace, session_timeout_ns(driver));
    beats_turn(driver, now_of(driver));
}

/* If a lease is good for a fifth of the timeout, the core renews it before that is over. If that fails, the lease is
 * SUSPECT. */
bool beats_are_late(const struct driver *driver, int64_t now_ns)
{
    const struct beats *beats = &driver->session->beats;
    return beats->state == BEAT_OUT &&
           now_ns - beats->pace.sent_ns > session_timeout_ns(driver) / 8;
}
