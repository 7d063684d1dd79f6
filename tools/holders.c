/* holders.c - how a lock and its holder are shown, in a table and in JSON.
 *
 * status, list and watch share it, so that all three show the same columns. */
#include "holders.h"

#include "duration.h"
#include "output.h"
#include "text.h"
#include "witness_ask.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const heads[] = {"NAME",    "STATE",   "HOST",   "PID",   "PROGRAM",
                                    "SINCE",   "UNTIL",   "TOKEN",  "QUEUE", "MODE",
                                    "HOLDERS", "PERMITS", "WITNESS"};
enum { COLUMNS = sizeof heads / sizeof heads[0], TERMINAL_COLUMNS = COLUMNS - 4 };

void holders_begin(struct table *table)
{
    /* A terminal is narrow: there the state says what the last columns say. */
    table_begin(table, heads, on_terminal() ? TERMINAL_COLUMNS : COLUMNS);
}

static const char *span(int64_t ms, const char *before, const char *after, char *buffer)
{
    char duration[DURATION_SIZE];

    if (ms < 0)
        return "-";
    snprintf(buffer, DURATION_SIZE + 8, "%s%s%s", before, format_duration(ms, duration), after);
    return buffer;
}

static const char *number(bool known, uint64_t value, char *buffer)
{
    if (!known)
        return "-";
    snprintf(buffer, DURATION_SIZE, "%" PRIu64, value);
    return buffer;
}

static const char *text_or_dash(const char *text, char *buffer, size_t size)
{
    return text[0] ? printable(text, buffer, size) : "-";
}

uint32_t holders_count(const mortise_info *info)
{
    return !info->held ? 0 : info->holders > 0 ? info->holders : 1;
}

const char *holders_others(const mortise_info *info, char *buffer, size_t size)
{
    const uint32_t others = info->mode == MORTISE_SHARED ? holders_count(info) - 1 : 0;

    if (others == 0)
        return "";
    if (others == 1)
        return " and another";
    snprintf(buffer, size, " and %" PRIu32 " others", others);
    return buffer;
}

static const char *mode_text(const mortise_info *info)
{
    return !info->held ? "-" : info->mode == MORTISE_SHARED ? "shared" : "exclusive";
}

static enum witnessed witness_of(const mortise_info *info)
{
    return info->held ? witness_ask(info->host, info->pid) : WITNESSED_UNKNOWN;
}

static const char *state_text(const mortise_info *info, enum witnessed witnessed, char *buffer,
                              size_t size)
{
    const char *mark = witnessed == WITNESSED_YES ? ", witness" : "";

    if (!info->held)
        return "free";
    if (!on_terminal())
        return "held";
    if (info->mode != MORTISE_SHARED)
        snprintf(buffer, size, "held%s", mark);
    else if (info->permits > 0)
        snprintf(buffer, size, "shared %" PRIu32 "/%" PRIu32 "%s", holders_count(info),
                 info->permits, mark);
    else
        snprintf(buffer, size, "shared %" PRIu32 "%s", holders_count(info), mark);
    return buffer;
}

static const char *witness_text(enum witnessed witnessed)
{
    return witnessed == WITNESSED_UNKNOWN ? "-" : witnessed == WITNESSED_YES ? "yes" : "no";
}

void holders_row(struct table *table, const mortise_info *info)
{
    char name[QUOTED_SIZE], host[4 * sizeof info->host], program[4 * sizeof info->program];
    char pid[DURATION_SIZE], token[DURATION_SIZE], waiters[DURATION_SIZE];
    char since[DURATION_SIZE + 8], until[DURATION_SIZE + 8];
    char holders[DURATION_SIZE], permits[DURATION_SIZE], state[64];
    const bool held = info->held;
    const enum witnessed witnessed = witness_of(info);

    table_row(table, (const char *[COLUMNS]){
                         printable(info->name, name, sizeof name),
                         state_text(info, witnessed, state, sizeof state),
                         text_or_dash(held ? info->host : "", host, sizeof host),
                         number(held && info->pid > 0, (uint64_t)info->pid, pid),
                         text_or_dash(held ? info->program : "", program, sizeof program),
                         span(held ? info->held_ms : -1, "", " ago", since),
                         span(held ? info->remaining_ms : -1, "in ", "", until),
                         number(held && info->token > 0, info->token, token),
                         number(info->waiters >= 0, (uint64_t)info->waiters, waiters),
                         mode_text(info),
                         number(held, holders_count(info), holders),
                         number(held && info->permits > 0, info->permits, permits),
                         witness_text(witnessed),
                     });
}

static void int_or_null(struct json *json, const char *key, bool known, int64_t value)
{
    if (known)
        json_int(json, key, value);
    else
        json_null(json, key);
}

static void text_or_null(struct json *json, const char *key, const char *text)
{
    if (text[0] != '\0')
        json_text(json, key, text);
    else
        json_null(json, key);
}

void holders_json_one(struct json *json, const mortise_info *info)
{
    text_or_null(json, "owner", info->owner);
    text_or_null(json, "host", info->host);
    int_or_null(json, "pid", info->pid > 0, info->pid);
    text_or_null(json, "program", info->program);
    int_or_null(json, "held_ms", info->held_ms >= 0, info->held_ms);
    int_or_null(json, "remaining_ms", info->remaining_ms >= 0, info->remaining_ms);
    if (info->token > 0)
        json_uint(json, "token", info->token);
    else
        json_null(json, "token");
    const enum witnessed witnessed = witness_of(info);
    if (witnessed == WITNESSED_UNKNOWN)
        json_null(json, "witnessed");
    else
        json_bool(json, "witnessed", witnessed == WITNESSED_YES);
}

void holders_json(struct json *json, const mortise_info *info)
{
    json_text(json, "name", info->name);
    json_bool(json, "held", info->held);
    int_or_null(json, "waiters", info->waiters >= 0, info->waiters);
    if (!info->held)
        return;
    holders_json_one(json, info);
    json_int(json, "leases", info->leases);
    json_text(json, "mode", mode_text(info));
    int_or_null(json, "permits", info->permits > 0, info->permits);
    json_int(json, "holders", holders_count(info));
}
