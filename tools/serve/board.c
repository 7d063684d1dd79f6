/* board.c - what is shown: the state of the backend (table in serve.h), the last hour, and the three texts. */
#include "serve.h"

#include "clock.h"
#include "json.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t wall_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* ---- The last hour --------------------------------------------------------------------------- */

static struct bucket *bucket_now(struct board *board)
{
    /* adds an hour to the time since the boot, so that no number of the last hour is negative or 0 */
    const int64_t number = boottime_ns() / 1000000 / BUCKET_MS + BUCKETS;
    int64_t next = board->newest_bucket + 1;

    if (board->newest_bucket == 0 || number - board->newest_bucket > BUCKETS)
        next = number - BUCKETS + 1;
    for (; next <= number; next++)
        board->buckets[next % BUCKETS] = (struct bucket){.held = -1, .waiting = -1};
    board->newest_bucket = number;
    return &board->buckets[number % BUCKETS];
}

static void remember(struct board *board, const struct answer *answer)
{
    struct bucket *bucket = bucket_now(board);

    if (answer->status != MORTISE_OK) {
        bucket->down = true;
        return;
    }
    const int64_t held = (int64_t)tally_held(&answer->tally);
    const int64_t waiting = tally_waiters(&answer->tally);
    if (held > bucket->held)
        bucket->held = held;
    if (waiting > bucket->waiting)
        bucket->waiting = waiting;
    bucket->expired += answer->expired;
    board->expired += answer->expired;
}

/* ---- The texts ------------------------------------------------------------------------------- */

static void number_or_null(struct json *json, const char *key, int64_t number)
{
    if (number >= 0)
        json_int(json, key, number);
    else
        json_null(json, key);
}

/* One array for each figure, the oldest bucket first. */
static void write_history(struct json *json, struct board *board)
{
    static const char *const keys[] = {"held", "waiting", "expired", "down"};

    bucket_now(board);
    json_key(json, "history");
    json_open(json, '{');
    json_int(json, "bucket_ms", BUCKET_MS);
    for (int key = 0; key < 4; key++) {
        json_key(json, keys[key]);
        putc('[', json->out);
        for (int64_t i = 1; i <= BUCKETS; i++) {
            const struct bucket *bucket = &board->buckets[(board->newest_bucket + i) % BUCKETS];
            const int64_t values[] = {bucket->held, bucket->waiting, (int64_t)bucket->expired,
                                      bucket->down};
            fprintf(json->out, i > 1 ? "," : "");
            if (values[key] >= 0)
                fprintf(json->out, "%lld", (long long)values[key]);
            else
                fprintf(json->out, "null");
        }
        putc(']', json->out);
        json->follows = true;
    }
    json_close(json, '}');
}

static void write_json(struct json *json, struct board *board)
{
    static const char *const words[] = {"starting", "up", "down"};
    mortise_module_info info = {.size = sizeof info};
    const char *where = mortise_config_source(board->client);
    const struct answer *last = &board->last;

    json_open(json, '{');
    json_text(json, "state", words[board->state]);
    json_int(json, "since_ms", board->since_ms);
    json_text(json, "error", board->state == DOWN ? board->error : "");
    json_text(json, "driver", mortise_module_at(board->client, 0, &info) ? info.section : "");
    json_text(json, "config", where ? where : "");
    json_text(json, "prefix", board->prefix);
    json_int(json, "interval_ms", board->interval_ms);
    number_or_null(json, "at_ms", last->locks ? last->at_ms : -1);
    number_or_null(json, "took_ms", last->locks ? last->took_ms : -1);
    json_int(json, "held", last->locks ? (int64_t)tally_held(&last->tally) : 0);
    number_or_null(json, "waiting", last->locks ? tally_waiters(&last->tally) : -1);
    number_or_null(json, "oldest_ms", last->locks ? tally_oldest_ms(&last->tally) : -1);
    json_int(json, "expired", (int64_t)board->expired);
    write_history(json, board);
    json_key(json, "locks");
    if (last->locks)
        fwrite(last->locks, 1, last->locks_length, json->out);
    else
        fputs("[]", json->out);
    json_close(json, '}');
    putc('\n', json->out);
}

static void write_metrics(FILE *out, const struct board *board)
{
    const struct answer *last = &board->last;

    metrics_write(out, board->client, board->state == UP ? &last->tally : NULL, last->took_ms);
    metrics_write_one(out, board->client, "mortise_backend_expired_total", "counter",
                      "Claims that ended by their ttl, as far as listings showed it.",
                      board->expired);
    if (last->locks != NULL)
        metrics_write_one(out, board->client, "mortise_backend_answered_timestamp_seconds", "gauge",
                          "When the backend last answered a listing.",
                          (uint64_t)last->at_ms / 1000);
}

/* No error text: a probe may ask for this without a token. */
static void write_health(FILE *out, const struct board *board)
{
    const time_t since = (time_t)(board->since_ms / 1000);
    char instant[32];
    struct tm utc;

    gmtime_r(&since, &utc);
    strftime(instant, sizeof instant, "%Y-%m-%dT%H:%M:%SZ", &utc);
    if (board->state == UP)
        fputs("ok\n", out);
    else if (board->state == STARTING)
        fputs("waiting for the first answer of the backend\n", out);
    else
        fprintf(out, "the backend has not answered since %s\n", instant);
}

static void replace(struct MHD_Response **response, const char *type, char *text, size_t length)
{
    if (*response != NULL)
        MHD_destroy_response(*response); /* it is freed when its last visitor has got it */
    *response = http_response(type, text, length);
}

static void publish(struct board *board)
{
    char *text = NULL;
    size_t length = 0;
    struct json json = {.out = must_have(open_memstream(&text, &length))};

    write_json(&json, board);
    fclose(json.out);
    replace(&board->json, "application/json", text, length);

    FILE *out = must_have(open_memstream(&text, &length));
    write_metrics(out, board);
    fclose(out);
    replace(&board->metrics, "text/plain; version=0.0.4; charset=utf-8", text, length);

    out = must_have(open_memstream(&text, &length));
    write_health(out, board);
    fclose(out);
    replace(&board->health, "text/plain; charset=utf-8", text, length);
}

/* ---- The state ------------------------------------------------------------------------------- */

static void board_move(struct board *board, enum backend_state state, int64_t since_ms)
{
    if (board->state == state)
        return;
    if (board->state != STARTING || state == UP)
        board->since_ms = since_ms;
    board->state = state;
}

void board_on_answer(struct board *board, struct answer *answer)
{
    remember(board, answer);
    if (answer->status == MORTISE_OK) {
        board_move(board, UP, answer->at_ms);
        answer_free(&board->last);
        board->last = *answer;
    } else {
        board_move(board, DOWN, answer->at_ms);
        memcpy(board->error, answer->error.message, sizeof board->error);
        answer_free(answer);
    }
    publish(board);
}

void board_on_time(struct board *board, int64_t asks_since_ns)
{
    const int64_t asks_ms = asks_since_ns ? (boottime_ns() - asks_since_ns) / 1000000 : 0;

    if (asks_ms < OVERDUE_MS)
        return;
    const int64_t bucket = board->newest_bucket;
    bucket_now(board)->down = true;
    if (board->state == DOWN && board->newest_bucket == bucket)
        return;
    snprintf(board->error, sizeof board->error, "no answer to a listing for %d s",
             OVERDUE_MS / 1000);
    board_move(board, DOWN, wall_ms() - asks_ms);
    publish(board);
}

void board_begin(struct board *board)
{
    board->since_ms = wall_ms();
    publish(board);
}

void board_end(struct board *board)
{
    MHD_destroy_response(board->json);
    MHD_destroy_response(board->metrics);
    MHD_destroy_response(board->health);
    answer_free(&board->last);
}
