/* chores.c - statements of the driver's own.
 *
 * A session of a lost connection (lib/sql/remote/ghost.c):
 *
 * | step | statement                            | a row, or done      | no row     | failed, lost, still there |
 * |------|--------------------------------------|---------------------|------------|---------------------------|
 * | LOOK | is the session in the server's list? | END                 | it is gone | LOOK, after a pause       |
 * | END  | KILL CONNECTION                      | LOOK, after a pause |            | LOOK, after a pause       |
 *
 * A session has gone from the list when its transaction has ended. Its number may be given to another session after the
 * server has restarted, so the client's address must be the same, too. The address does not distinguish sessions over a unix
 * socket (`localhost`), or with a name so long that MariaDB cuts the port off (64 bytes). Then another session that has the
 * number after a restart may be ended. The list is that of one server: see ghost.c.
 *
 * Rows that have been free for long (lib/sql/remote/sweep.c):
 *
 * | step | statement                               | then                                                   |
 * |------|-----------------------------------------|--------------------------------------------------------|
 * | TURN | is it long enough since anybody did it? | yes: FROM; no: over                                    |
 * | FROM | how far did the last sweep get?         | END                                                    |
 * | END  | where does the stretch end?             | LOOK                                                   |
 * | LOOK | which rows of it are old? Locks none    | some: DROP; none: *next*                               |
 * | DROP | deletes those, if they are still free   | *next*; also if one stays locked for lock_timeout      |
 * | NOTE | writes how far it got                   | END, after a pause; or over, if that is the first name |
 *
 * *Next* is END, after a pause, every fourth time NOTE. A client that closes notes each time: its time may be over soon. The
 * last stretch is followed by NOTE, if there is a note to take back: the next sweep begins with the first name. */
#include "driver.h"

#include <string.h>

#define STRETCH_PAUSE_NS (10 * NS_PER_MS)
#define NOTE_EVERY 4                 /* stretches */
#define APART_US INT64_C(1700000000) /* between the sweeps of the fleet; less than half an hour */

/* ---- sessions ----------------------------------------------------------------------------------- */

static bool ask_about(struct request *request, enum text_id id, const struct session *session)
{
    struct values values = {.count = 0};
    value_number(&values, session->id);
    value_bytes(&values, session->peer, strlen(session->peer));
    return statement_send(request, id, &values);
}

bool ghost_look(struct request *request, const struct session *session)
{
    return ask_about(request, TEXT_GHOST_LOOK, session);
}

enum ghost_answer ghost_take(struct request *request, const struct session *session)
{
    const struct my_request *mine = my_request(request);
    if (mine->id != TEXT_GHOST_LOOK || mine->rows == NULL)
        return GHOST_THERE;
    if (mysql_num_rows(mine->rows) == 0)
        return GHOST_GONE;
    return ask_about(request, TEXT_GHOST_END, session) ? GHOST_ASKED : GHOST_THERE;
}

/* ---- rows --------------------------------------------------------------------------------------- */

static struct driver *sweeper(const struct request *request)
{
    return (struct driver *)request->base.locks;
}

static void end_at(struct driver *driver, const char *name, size_t len)
{
    driver->sweep_end_len = len < MORTISE_NAME_MAX ? len : MORTISE_NAME_MAX;
    memcpy(driver->sweep_end, name, driver->sweep_end_len);
    driver->sweep_ends = false;
}

static void end_behind_all(struct driver *driver)
{
    driver->sweep_end_len = MORTISE_NAME_MAX;
    memset(driver->sweep_end, 0xff, MORTISE_NAME_MAX);
    driver->sweep_ends = true;
}

/* Takes the only column of the first row; returns its length. 0: there is none, or it makes no sense. */
static size_t take_name(const struct request *request, const char **name)
{
    MYSQL_RES *rows = my_request_const(request)->rows;
    MYSQL_ROW row = rows != NULL ? mysql_fetch_row(rows) : NULL;
    const unsigned long *lengths = row != NULL ? mysql_fetch_lengths(rows) : NULL;
    if (lengths == NULL || row[0] == NULL || lengths[0] > MORTISE_NAME_MAX)
        return 0;
    *name = row[0];
    return lengths[0];
}

static bool send_end(struct request *request)
{
    const struct remote *remote = &sweeper(request)->remote;
    struct values values = {.count = 0};
    value_bytes(&values, remote->sweep_from, remote->sweep_from_len);
    request->tries = request->waits = 0;
    request->locked_ns = 0;
    return statement_send(request, TEXT_SWEEP_END, &values);
}

static bool send_end_later(struct request *request)
{
    bool sent = send_end(request);
    request->not_before_ns = remote_now(&sweeper(request)->remote) + STRETCH_PAUSE_NS;
    return sent;
}

static bool send_look(struct request *request)
{
    const struct driver *driver = sweeper(request);
    struct values values = {.count = 0};
    value_bytes(&values, driver->remote.sweep_from, driver->remote.sweep_from_len);
    value_bytes(&values, driver->sweep_end, driver->sweep_end_len);
    return statement_send(request, TEXT_SWEEP_LOOK, &values);
}

/* Makes the list of DROP from the names that were found. If there are as many as LOOK can return, there may be more, so the
 * stretch ends with the last of these. False: there are none. */
static bool send_drop(struct request *request)
{
    struct my_request *mine = my_request(request);
    MYSQL_ROW row;
    size_t count = 0;
    text_clear(&mine->text);
    text_string(&mine->text, sql_texts[TEXT_SWEEP_DROP].text);
    while (mine->rows != NULL && (row = mysql_fetch_row(mine->rows)) != NULL) {
        const unsigned long *lengths = mysql_fetch_lengths(mine->rows);
        if (row[0] == NULL || lengths == NULL)
            continue;
        text_add(&mine->text, ",", count++ > 0);
        text_hex(&mine->text, row[0], lengths[0]);
        if (count == SWEEP_MAX)
            end_at(sweeper(request), row[0], lengths[0]);
    }
    text_string(&mine->text, sql_sweep_end);
    if (count == 0 || mine->text.failed)
        return false;
    mine->id = TEXT_SWEEP_DROP;
    statement_queue(request, LANE_DURABLE);
    return true;
}

static bool send_note(struct request *request)
{
    struct driver *driver = sweeper(request);
    struct values values = {.count = 0};
    value_bytes(&values, driver->remote.sweep_from, driver->remote.sweep_from_len);
    driver->sweep_noted = true;
    return statement_send(request, TEXT_SWEEP_NOTE, &values);
}

static bool send_next_stretch(struct request *request)
{
    struct driver *driver = sweeper(request);
    struct remote *remote = &driver->remote;
    if (driver->sweep_ends) {
        remote->sweep_from_len = 0;
        return driver->sweep_noted && send_note(request);
    }
    if (!sweep_next(remote, driver->sweep_end, driver->sweep_end_len))
        return false;
    bool notes = remote->locks.closing || ++driver->sweep_count % NOTE_EVERY == 0;
    return notes ? send_note(request) : send_end_later(request);
}

static bool send_first_end(struct request *request)
{
    struct driver *driver = sweeper(request);
    const char *name = NULL;
    size_t len = take_name(request, &name);
    driver->sweep_noted = sweep_next(&driver->remote, name, len);
    driver->sweep_count = 0;
    return send_end(request);
}

/* False: the sweep is over. */
static bool send_next(struct request *request)
{
    const struct my_request *mine = my_request(request);
    struct driver *driver = sweeper(request);
    const struct values none = {.count = 0};
    const char *name = NULL;
    size_t len;
    switch (mine->id) {
    case TEXT_SWEEP_TURN:
        return mine->touched > 0 && statement_send(request, TEXT_SWEEP_FROM, &none);
    case TEXT_SWEEP_FROM:
        return send_first_end(request);
    case TEXT_SWEEP_END:
        len = take_name(request, &name);
        if (len > 0)
            end_at(driver, name, len);
        else
            end_behind_all(driver);
        return send_look(request);
    case TEXT_SWEEP_LOOK:
        return send_drop(request) || send_next_stretch(request);
    case TEXT_SWEEP_NOTE:
        return driver->remote.sweep_from_len > 0 && send_end_later(request);
    default:
        return send_next_stretch(request);
    }
}

static void swept(struct request *request)
{
    if (!sweep_goes_on(&sweeper(request)->remote) || !send_next(request))
        sweep_over(request);
}

/* The sweep goes on without a note, because that needs a right that the user may lack. It also goes on behind old rows if
 * another session keeps one of them locked. Otherwise all sweeps would end there for as long as that lasts. */
static void failed(struct request *request, const struct fault *fault)
{
    enum text_id id = my_request(request)->id;
    bool lost = (fault->flags & FAULT_RESET) != 0;
    bool locked = id == TEXT_SWEEP_DROP && (fault->flags & FAULT_WAITED) != 0;
    if ((id == TEXT_SWEEP_NOTE || locked) && !lost)
        swept(request);
    else
        sweep_failed(request, fault);
}

struct request *sweep(struct remote *remote)
{
    static const struct handler handler = {.answered = swept, .failed = failed, .lost = sweep_lost};
    struct values values = {.count = 0};
    struct request *request = statement_new(remote, &handler);
    if (request == NULL)
        return NULL;
    value_number(&values, APART_US);
    request->alone = true; /* its rows have no common order with those of others */
    if (statement_send(request, TEXT_SWEEP_TURN, &values))
        return request;
    statement_free(request);
    return NULL;
}
