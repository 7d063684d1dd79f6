/* fate.c - decides what happens to a request. It draws a number for each request, which depends only on the seed,
 * the request's kind, its name, and how many requests of that kind and name came before. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#define NEWS_KIND 31 /* a number is drawn for news, as for a request */

/* The next number of one draw: splitmix64. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t hash(const char *name, size_t name_len, uint64_t hash)
{
    for (size_t i = 0; i < name_len; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    return next(&hash);
}

static uint64_t draw(struct chaos *chaos, unsigned kind, const char *name, size_t name_len)
{
    uint64_t place = hash(name, name_len, kind);
    uint64_t count = chaos->counters[place % COUNTERS]++;
    uint64_t state = place ^ (uint64_t)chaos->values[OPTION_SEED].number;
    state = next(&state) ^ count;
    return next(&state);
}

static int64_t number(const struct chaos *chaos, enum option option)
{
    return chaos->values[option].number;
}

/* A time from 0 to the option's value. */
static int64_t some_ns(const struct chaos *chaos, enum option option, uint64_t *state)
{
    int64_t ns = number(chaos, option) * NS_PER_MS;
    return ns <= 0 ? 0 : (int64_t)(next(state) % (uint64_t)(ns + 1));
}

static bool changes_something(const mortise_op *op)
{
    return op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RENEW ||
           op->kind == MORTISE_OP_RELEASE || op->kind == MORTISE_OP_WRITE;
}

/* Draws a number below a thousand: the lowest ones mean that the request is refused, the next ones that it is
 * lost, and so on. */
static enum fault draw_fault(const struct chaos *chaos, const mortise_op *op, uint64_t *state)
{
    static const enum option shares[] = {[FAULT_REFUSE] = OPTION_REFUSE,
                                         [FAULT_LOSE_REQUEST] = OPTION_LOSE_REQUESTS,
                                         [FAULT_LOSE_REPLY] = OPTION_LOSE_REPLIES,
                                         [FAULT_GHOST] = OPTION_GHOSTS};
    int64_t drawn = (int64_t)(next(state) % 1000), drawn_renewal = (int64_t)(next(state) % 1000);
    if (op->kind == MORTISE_OP_RENEW && drawn_renewal < number(chaos, OPTION_LOSE_RENEWALS))
        return FAULT_REFUSE;
    for (enum fault fault = FAULT_REFUSE; fault <= FAULT_GHOST; fault++) {
        drawn -= number(chaos, shares[fault]);
        if (drawn < 0)
            return changes_something(op) ? fault : FAULT_REFUSE;
    }
    return FAULT_NONE;
}

struct fate fate_of(struct chaos *chaos, const mortise_op *op)
{
    if ((chaos->only & 1u << op->kind) == 0)
        return (struct fate){.fault = FAULT_NONE};
    uint64_t state = draw(chaos, op->kind, op->name, op->name_len);
    struct fate fate = {.fault = draw_fault(chaos, op, &state)};
    fate.delay_ns = some_ns(chaos, OPTION_DELAY, &state);
    fate.reply_delay_ns = some_ns(chaos, OPTION_REPLY_DELAY, &state);
    if (fate.fault == FAULT_GHOST)
        fate.delay_ns = some_ns(chaos, OPTION_GHOST_DELAY, &state);
    return fate;
}

bool fate_loses_news(struct chaos *chaos, const char *name, size_t name_len)
{
    uint64_t state = draw(chaos, NEWS_KIND, name, name_len);
    return (int64_t)(next(&state) % 1000) < number(chaos, OPTION_LOSE_NEWS);
}

int64_t fate_pause_end(const struct chaos *chaos, int64_t now_ns)
{
    if (!chaos->pauses || now_ns < chaos->opened_ns)
        return 0;
    int64_t every_ns = number(chaos, OPTION_PAUSE_EVERY) * NS_PER_MS;
    int64_t for_ns = number(chaos, OPTION_PAUSE_FOR) * NS_PER_MS;
    int64_t period = (now_ns - chaos->opened_ns) / every_ns;
    uint64_t state = (uint64_t)number(chaos, OPTION_SEED) ^ ~(uint64_t)period;
    int64_t begins_ns = chaos->opened_ns + period * every_ns +
                        (int64_t)(next(&state) % (uint64_t)(every_ns - for_ns));
    bool inside = now_ns >= begins_ns && now_ns - begins_ns < for_ns;
    return inside ? begins_ns + for_ns : 0;
}

/* ---- the options -------------------------------------------------------------------------------- */

static mortise_status wrong(mortise_error *error, const char *section, const char *what)
{
    snprintf(error->message, sizeof(error->message), "[%s] %s", section, what);
    return error->status = MORTISE_CONFIG;
}

static const struct {
    const char *word;
    mortise_op_kind kind;
} kinds[] = {{"acquire", MORTISE_OP_ACQUIRE}, {"renew", MORTISE_OP_RENEW},
             {"release", MORTISE_OP_RELEASE}, {"inspect", MORTISE_OP_INSPECT},
             {"list", MORTISE_OP_LIST},       {"read", MORTISE_OP_READ},
             {"write", MORTISE_OP_WRITE},     {"ping", MORTISE_OP_PING}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static bool add_kind(struct chaos *chaos, const char *word, size_t length)
{
    for (size_t i = 0; i < KINDS; i++)
        if (strlen(kinds[i].word) == length && memcmp(kinds[i].word, word, length) == 0) {
            chaos->only |= 1u << kinds[i].kind;
            return true;
        }
    return false;
}

static mortise_status read_only(struct chaos *chaos, const char *section, mortise_error *error)
{
    static const char separators[] = ", \t";
    const char *text = chaos->values[OPTION_ONLY].text;
    char what[160];
    chaos->only = text == NULL ? UINT32_MAX : 0;
    while (text != NULL && *(text += strspn(text, separators)) != '\0') {
        size_t length = strcspn(text, separators);
        if (!add_kind(chaos, text, length)) {
            snprintf(what, sizeof(what),
                     "only: \"%.*s\" is none of acquire, renew, release, inspect, list, read, "
                     "write, ping",
                     length < 32 ? (int)length : 32, text);
            return wrong(error, section, what);
        }
        text += length;
    }
    return MORTISE_OK;
}

mortise_status fate_check(struct chaos *chaos, const char *section, mortise_error *error)
{
    int64_t sum = number(chaos, OPTION_REFUSE) + number(chaos, OPTION_LOSE_REQUESTS) +
                  number(chaos, OPTION_LOSE_REPLIES) + number(chaos, OPTION_GHOSTS);
    if (sum > 1000)
        return wrong(error, section,
                     "refuse, lose_requests, lose_replies and ghosts are together more than 1000 "
                     "of 1000 requests");
    chaos->pauses = number(chaos, OPTION_PAUSE_EVERY) > 0 && number(chaos, OPTION_PAUSE_FOR) > 0;
    if (chaos->pauses && number(chaos, OPTION_PAUSE_FOR) >= number(chaos, OPTION_PAUSE_EVERY))
        return wrong(error, section, "pause_for must be shorter than pause_every");
    return read_only(chaos, section, error);
}
