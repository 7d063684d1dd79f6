/* tally.c - who holds a lock, according to several nodes. A grant that q nodes name holds it. A grant that fewer nodes name
 * may be a split vote, or a holder whose other nodes are down.
 *
 * But each node answers at its own instant, and the rounds of an acquire share a grant id. So q nodes may name a grant that
 * never had more than one of them at a time: one in this round, another in the next. The undo of such a round is not
 * announced. Each round proposes another token, so the votes of two rounds differ in it; without tokens, in their time (but
 * a repeated request, and one that removes a bar, have the nodes' own times: such a holder is looked at every `retry`). A grant
 * that q nodes name with one token has the lock, or its undo is announced (see ask_look() in acquire.c). */
#include "redlock.h"

/* The marker of a shared lock has a grant id of zeros. */
static bool is_marker(const char *value, size_t length)
{
    for (size_t i = 0; i < GRANT_HEX; i++)
        if (length <= GRANT_HEX || value[i] != '0')
            return false;
    return true;
}

static struct seen *find(struct tally *tally, const char *value, size_t length)
{
    size_t id = length < GRANT_HEX ? length : GRANT_HEX;
    for (unsigned i = 0; i < tally->count; i++)
        if (tally->seen[i].length == id && memcmp(tally->seen[i].grant, value, id) == 0)
            return &tally->seen[i];
    if (tally->count == SEEN_MAX)
        return NULL;
    struct seen *seen = &tally->seen[tally->count++];
    *seen = (struct seen){.length = id, .shared = is_marker(value, length)};
    memcpy(seen->grant, value, id);
    return seen;
}

#define VALUE_TOKEN_END (GRANT_HEX + 1 + TOKEN_DIGITS)

static uint64_t token_of(const char *value, size_t length)
{
    if (length < VALUE_TOKEN_END || value[GRANT_HEX] != ' ')
        return 0;
    return text_number(value + GRANT_HEX + 1, TOKEN_DIGITS);
}

/* A marker belongs to no round, because each node has its own time. */
static uint64_t since_of(const struct seen *seen, const char *value, size_t length)
{
    if (seen->shared || length < VALUE_TOKEN_END + 1 + TOKEN_DIGITS ||
        value[VALUE_TOKEN_END] != ' ')
        return 0;
    return text_number(value + VALUE_TOKEN_END + 1, TOKEN_DIGITS);
}

/* The holder's largest token, or, without tokens, its earliest time, is that of the round that got the lock: votes that did
 * not take the token have none, and a repaired vote has a later time. */
static void count(struct seen *seen, uint64_t token, uint64_t since)
{
    bool alike = token == seen->token && (token > 0 || since == seen->since);
    bool earlier = token == 0 && seen->token == 0 && since < seen->since;
    if (seen->nodes++ == 0 || token > seen->token || earlier) {
        seen->alike = 1;
        seen->token = token;
        seen->since = since;
    } else
        seen->alike += alike;
}

static bool is_holder(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements >= 3 &&
           reply->element[0]->type == REDIS_REPLY_INTEGER &&
           reply->element[1]->type == REDIS_REPLY_STRING &&
           reply->element[2]->type == REDIS_REPLY_STRING;
}

/* Describes one of the shared holders, and says how many there are. */
static void describe_shared(const redisReply *reply, mortise_info *info)
{
    bool tells = reply->elements == 5 && reply->element[3]->type == REDIS_REPLY_INTEGER &&
                 reply->element[4]->type == REDIS_REPLY_STRING;
    const redisReply *now = reply->element[2];
    info->held = true;
    info->mode = MORTISE_SHARED;
    if (!tells)
        return;
    holder_of_string(reply->element[4]->str, reply->element[4]->len,
                     text_number(now->str, now->len), info);
    info->holders = (uint32_t)reply->element[3]->integer;
}

bool tally_add(struct tally *tally, const redisReply *reply, mortise_info *info)
{
    if (!is_holder(reply))
        return false;
    int64_t remaining_ms = reply->element[0]->integer < 0 ? -1 : reply->element[0]->integer;
    const redisReply *value = reply->element[1], *now = reply->element[2];
    struct seen *seen = find(tally, value->str, value->len);
    if (seen == NULL)
        return true;
    if (value->len > VALUE_TOKEN_END && value->str[VALUE_TOKEN_END] == ' ' &&
        value->str[GRANT_HEX] >= MARK)
        value->str[GRANT_HEX] = ' ';
    uint64_t token = token_of(value->str, value->len);
    bool tells = token > seen->token || seen->nodes == 0;
    count(seen, token, since_of(seen, value->str, value->len));
    if (remaining_ms < 0 || (seen->remaining_ms >= 0 && remaining_ms > seen->remaining_ms))
        seen->remaining_ms = remaining_ms;
    if (info != NULL && seen == tally_best(tally) && seen->shared) {
        describe_shared(reply, info);
        info->remaining_ms = seen->remaining_ms;
    } else if (info != NULL && seen == tally_best(tally)) {
        info->mode = MORTISE_EXCLUSIVE;
        info->holders = 1;
        if (tells || info->token != seen->token)
            holder_of_string(value->str, value->len, text_number(now->str, now->len), info);
        info->token = seen->token;
        info->remaining_ms = seen->remaining_ms;
    }
    return true;
}

const struct seen *tally_best(const struct tally *tally)
{
    const struct seen *best = NULL;
    for (unsigned i = 0; i < tally->count; i++)
        if (best == NULL || tally->seen[i].nodes > best->nodes)
            best = &tally->seen[i];
    return best;
}

bool tally_is_sure(const struct driver *driver, const struct seen *best)
{
    return best != NULL && best->alike >= driver->quorum;
}

bool tally_is_held(const struct driver *driver, const struct seen *best, unsigned unknown)
{
    if (best == NULL)
        return false;
    if (best->nodes >= driver->quorum)
        return true;
    return best->nodes + unknown >= driver->quorum &&
           (!driver->fencing || best->token > 0 || best->shared);
}
