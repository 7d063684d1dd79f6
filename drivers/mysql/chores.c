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
 * server has restarted, so the client's address must be the same, too. That does not tell sessions apart through a unix socket
 * (`localhost`), nor with a name so long that MariaDB cuts the port off (64 bytes): then another session that has the number
 * after a restart may be ended. A list is of one server: see ghost.c.
 *
 * Rows that have been free for long (lib/sql/remote/sweep.c):
 *
 * | step | statement                               | then                                  |
 * |------|-----------------------------------------|---------------------------------------|
 * | TURN | is it long enough since anybody did it? | yes: LOOK; no: the end                |
 * | LOOK | which rows? It locks none               | some: DROP; none: the end             |
 * | DROP | deletes those, if they are still free   | there may be more: LOOK; else the end | */
#include "driver.h"

#include <string.h>

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

/* The names that were found become the list of DROP. False: there are none. */
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
    }
    text_string(&mine->text, sql_sweep_end);
    if (count == 0 || mine->text.failed)
        return false;
    mine->id = TEXT_SWEEP_DROP;
    statement_queue(request, LANE_DURABLE);
    return true;
}

static void swept(struct request *request)
{
    const struct my_request *mine = my_request(request);
    const struct values none = {.count = 0};
    bool looked = mine->id == TEXT_SWEEP_LOOK;
    bool goes_on = looked              ? send_drop(request)
                   : mine->touched > 0 ? statement_send(request, TEXT_SWEEP_LOOK, &none)
                                       : false;
    if (!goes_on)
        sweep_over(request);
}

struct request *sweep(struct remote *remote)
{
    static const struct handler handler = {
        .answered = swept, .failed = sweep_failed, .lost = sweep_lost};
    struct values values = {.count = 0};
    struct request *request = statement_new(remote, &handler);
    if (request == NULL)
        return NULL;
    value_number(&values, APART_US);
    request->alone = true; /* its rows are in no order with those of others */
    if (statement_send(request, TEXT_SWEEP_TURN, &values))
        return request;
    statement_free(request);
    return NULL;
}
