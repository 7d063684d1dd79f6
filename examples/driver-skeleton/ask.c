/* ask.c - turns ops into lines, and the server's lines into answers. server.py has the grammar. Everything that comes
 * from outside (names, notes) is sent as hexadecimal digits, so none of it can be mistaken for a word of the
 * protocol. Knows no sockets. */
#include "skeleton.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t now(const struct skeleton *skeleton)
{
    return skeleton->host->now(skeleton->host);
}

/* ---- ops without an answer yet ---- */

static void append(struct skeleton *skeleton, mortise_op *op)
{
    op->previous = skeleton->last;
    op->next = NULL;
    if (skeleton->last != NULL)
        skeleton->last->next = op;
    else
        skeleton->first = op;
    skeleton->last = op;
}

static void take_out(struct skeleton *skeleton, mortise_op *op)
{
    if (op->previous != NULL)
        op->previous->next = op->next;
    else
        skeleton->first = op->next;
    if (op->next != NULL)
        op->next->previous = op->previous;
    else
        skeleton->last = op->previous;
}

static void complete(struct skeleton *skeleton, mortise_op *op, mortise_status status)
{
    take_out(skeleton, op);
    skeleton->host->complete(skeleton->host, op, status);
}

/* What the server refused (BACKEND) it will refuse again. After other failures a retry may help. */
static void fail(struct skeleton *skeleton, mortise_op *op, mortise_status status, const char *why)
{
    char name[128];
    bool retryable = status != MORTISE_BACKEND;
    take_out(skeleton, op);
    skeleton->host->fail(skeleton->host, op, status, 0, retryable, "skeleton at %s:%s, lock %s: %s",
                         skeleton->node, skeleton->port,
                         skeleton->host->quote(op->name, op->name_len, name, sizeof(name)), why);
}

/* Answers come in the order of the requests, so this is usually the first op. NULL: the op was canceled. */
static mortise_op *find(const struct skeleton *skeleton, uintptr_t number)
{
    mortise_op *op = skeleton->first;
    while (op != NULL && op_number(op) != number)
        op = op->next;
    return op;
}

/* ---- requests ---- */

static const char *verb_of(const mortise_op *op)
{
    static const char *const verbs[] = {
        [MORTISE_OP_ACQUIRE] = "ACQUIRE", [MORTISE_OP_RENEW] = "RENEW",
        [MORTISE_OP_RELEASE] = "RELEASE", [MORTISE_OP_INSPECT] = "INSPECT",
        [MORTISE_OP_LIST] = "LIST",       [MORTISE_OP_PING] = "PING",
    };
    if (op->kind == MORTISE_OP_RELEASE && (op->flags & MORTISE_OP_BREAK) != 0)
        return "BREAK";
    return (size_t)op->kind < sizeof(verbs) / sizeof(*verbs) ? verbs[op->kind] : NULL;
}

/* NUMBER VERB NAME GRANT TTL TOKEN NOTE. All verbs have the same form, and ignore what they do not need. */
static void write_out(struct skeleton *skeleton, mortise_op *op)
{
    uint64_t token = op->kind == MORTISE_OP_ACQUIRE ? op->token_floor : op->token;
    if (!is_owed(skeleton))
        skeleton->silent_ns = now(skeleton);
    op->driver_data[0] = (void *)++skeleton->last_number;
    if (op->first_sent_ns == 0) /* R1: set it before the first byte, and not again for a repeat */
        op->first_sent_ns = now(skeleton);
    link_put(skeleton, "%" PRIuPTR " %s ", skeleton->last_number, verb_of(op));
    link_put_hex(skeleton, op->name, op->name_len);
    link_put(skeleton, " ");
    link_put_hex(skeleton, op->grant.bytes, sizeof(op->grant.bytes));
    link_put(skeleton, " %" PRId64 " %" PRIu64 " ", op->ttl_ms, token);
    link_put_hex(skeleton, op->note, op->note_len);
    link_put(skeleton, "\n");
}

void ask_start(struct skeleton *skeleton, mortise_op *op)
{
    append(skeleton, op);
    if (verb_of(op) == NULL) {
        complete(skeleton, op, MORTISE_NOTSUP); /* records, which this driver does not have */
        return;
    }
    if (skeleton->state == LINK_UP)
        write_out(skeleton, op);
    else
        link_need(skeleton);
}

void ask_cancel(struct skeleton *skeleton, mortise_op *op)
{
    complete(skeleton, op, op_number(op) == 0 ? MORTISE_CANCELED : MORTISE_INDETERMINATE);
}

static void say_watch(struct skeleton *skeleton, const char *verb, const char *name,
                      size_t name_len)
{
    link_put(skeleton, "0 %s ", verb);
    link_put_hex(skeleton, name, name_len);
    link_put(skeleton, "\n");
}

void ask_all(struct skeleton *skeleton)
{
    for (struct watched *each = skeleton->watched; each != NULL; each = each->next)
        say_watch(skeleton, "WATCH", each->name, each->name_len);
    for (mortise_op *op = skeleton->first; op != NULL; op = op->next)
        write_out(skeleton, op);
}

void ask_fail_all(struct skeleton *skeleton, const char *why)
{
    while (skeleton->first != NULL) {
        mortise_op *op = skeleton->first;
        fail(skeleton, op, op_number(op) == 0 ? MORTISE_UNREACHABLE : MORTISE_INDETERMINATE, why);
    }
}

/* ---- news ---- */

void ask_watch(struct skeleton *skeleton, const char *name, size_t name_len)
{
    struct watched *watched = malloc(sizeof(*watched) + name_len);
    if (watched == NULL) { /* pretend news: the core asks again, gets BUSY, and watches again */
        skeleton->host->news(skeleton->host, name, name_len);
        return;
    }
    watched->name_len = name_len;
    memcpy(watched->name, name, name_len);
    watched->next = skeleton->watched;
    skeleton->watched = watched;
    if (skeleton->state == LINK_UP)
        say_watch(skeleton, "WATCH", name, name_len);
    else
        link_need(skeleton);
}

void ask_unwatch(struct skeleton *skeleton, const char *name, size_t name_len)
{
    struct watched **place = &skeleton->watched, *gone;
    while (*place != NULL &&
           ((*place)->name_len != name_len || memcmp((*place)->name, name, name_len) != 0))
        place = &(*place)->next;
    if (*place == NULL)
        return;
    gone = *place;
    *place = gone->next;
    free(gone);
    if (skeleton->state == LINK_UP)
        say_watch(skeleton, "UNWATCH", name, name_len);
}

/* ---- answers ---- */

/* Ends at the first pair that is none: a server may send half of one, and what is behind it is not ours. */
static size_t from_hex(const char *hex, char *to, size_t size)
{
    size_t length = 0;
    unsigned byte;
    for (; length < size && isxdigit((unsigned char)hex[0]) && isxdigit((unsigned char)hex[1]);
         hex += 2) {
        sscanf(hex, "%2x", &byte);
        to[length++] = (char)byte;
    }
    return length;
}

static uint64_t number_of(const char *word)
{
    return word != NULL ? strtoull(word, NULL, 10) : 0;
}

static char *next_word(char **rest)
{
    char *word;
    do
        word = strsep(rest, " ");
    while (word != NULL && *word == '\0');
    return word;
}

/* Reads GRANT TOKEN HELD REMAINING NOTE; an empty text means that the name is free. */
static void read_holder(char *rest, mortise_info *info)
{
    char note[MORTISE_NOTE_MAX + 1];
    const char *grant = next_word(&rest);
    info->held = grant != NULL;
    info->waiters = -1;
    if (grant == NULL)
        return;
    snprintf(info->owner, sizeof(info->owner), "%s",
             grant); /* leases are never shared, so the owner is the grant */
    info->leases = 1;
    info->token = number_of(next_word(&rest));
    info->held_ms = (int64_t)number_of(next_word(&rest));
    info->remaining_ms = (int64_t)number_of(next_word(&rest));
    const char *hex = next_word(&rest);
    note[hex != NULL ? from_hex(hex, note, MORTISE_NOTE_MAX) : 0] = '\0';
    sscanf(note, "%64[^\n]\n%" SCNd64 "\n%32[^\n]", info->host, &info->pid, info->program);
}

/* What the server reports about a name, in the layout that this driver knows. */
static mortise_info info_of(const char *name, size_t name_len, char *rest)
{
    mortise_info info = {.size = sizeof(info)};
    memcpy(info.name, name, name_len <= MORTISE_NAME_MAX ? name_len : MORTISE_NAME_MAX);
    read_holder(rest, &info);
    return info;
}

/* Copies it for the caller. A newer core knows more fields; an older one does not load this driver. */
static void give_info(const mortise_op *op, char *rest)
{
    if (op->info == NULL)
        return;
    mortise_info info = info_of(op->name, op->name_len, rest);
    info.size = op->info->size; /* the core's struct has our fields, and perhaps more */
    *op->info = info;
}

static void emit(struct skeleton *skeleton, mortise_op *op, char *rest)
{
    char name[MORTISE_NAME_MAX];
    const char *hex = next_word(&rest);
    if (hex == NULL)
        return;
    mortise_info info = info_of(name, from_hex(hex, name, sizeof(name)), rest);
    skeleton->host->emit(skeleton->host, op, &info);
}

/* The claim counts from before it was first requested, whichever repeat was answered. */
static void granted(mortise_op *op, char *rest)
{
    if (op->kind == MORTISE_OP_ACQUIRE)
        op->token = number_of(next_word(&rest));
    op->from_ns = op->first_sent_ns;
    op->good_for_ms = op->ttl_ms;
}

static void answered_ok(mortise_op *op, char *rest)
{
    if (op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RENEW)
        granted(op, rest);
    if (op->kind == MORTISE_OP_INSPECT)
        give_info(op, rest);
    if (op->kind == MORTISE_OP_PING)
        snprintf(op->buffer, op->buffer_size, "%s", rest != NULL ? rest : "");
}

static void answered_busy(mortise_op *op, char *rest)
{
    op->hint_ms = (int64_t)number_of(next_word(&rest));
    give_info(op, rest);
}

static void answer(struct skeleton *skeleton, mortise_op *op, const char *word, char *rest)
{
    op->sure = true; /* HELLO has ended all older connections: nothing is executed later */
    if (strcmp(word, "OK") == 0) {
        answered_ok(op, rest);
        complete(skeleton, op, MORTISE_OK);
    } else if (strcmp(word, "BUSY") == 0) {
        answered_busy(op, rest);
        complete(skeleton, op, MORTISE_BUSY);
    } else if (strcmp(word, "LOST") == 0) {
        complete(skeleton, op, MORTISE_LOST);
    } else if (strcmp(word, "NOTOWNER") == 0) {
        complete(skeleton, op, MORTISE_NOTOWNER);
    } else {
        char quoted[100], why[128]; /* foreign text in a message is truncated and escaped */
        snprintf(why, sizeof(why), "the server says %s",
                 skeleton->host->quote(word, strlen(word), quoted, sizeof(quoted)));
        fail(skeleton, op, MORTISE_BACKEND, why);
    }
}

static void heard_news(struct skeleton *skeleton, char *rest)
{
    char name[MORTISE_NAME_MAX];
    const char *hex = next_word(&rest);
    if (hex != NULL)
        skeleton->host->news(skeleton->host, name, from_hex(hex, name, sizeof(name)));
}

/* Each line of an answer shows that the server is there; the last one ends it. Ops may be gone: see is_owed(). */
static void heard_answer(struct skeleton *skeleton, uintptr_t number, const char *word)
{
    if (number <= skeleton->answered || number > skeleton->last_number)
        return; /* nobody has asked */
    skeleton->silent_ns = now(skeleton);
    if (strcmp(word, "ITEM") != 0)
        skeleton->answered = number;
}

void ask_line(struct skeleton *skeleton, char *line)
{
    char *rest = line;
    uintptr_t number = (uintptr_t)number_of(next_word(&rest));
    const char *word = next_word(&rest);
    mortise_op *op = number != 0 ? find(skeleton, number) : NULL;
    if (word == NULL)
        return;
    heard_answer(skeleton, number, word);
    if (number == 0 && strcmp(word, "NEWS") == 0)
        heard_news(skeleton, rest);
    else if (op != NULL && op->kind == MORTISE_OP_LIST && strcmp(word, "ITEM") == 0)
        emit(skeleton, op, rest);
    else if (op != NULL)
        answer(skeleton, op, word, rest);
}
