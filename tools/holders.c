/* holders.c - how a lock and its holder are shown, in a table and in JSON.
 *
 * status, list and watch share it, so that all three show the same columns. */
#include "holders.h"

#include "duration.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const heads[] = {"NAME",  "STATE", "HOST",  "PID",  "PROGRAM",
                                    "SINCE", "UNTIL", "TOKEN", "QUEUE"};
enum { COLUMNS = sizeof heads / sizeof heads[0] };

void holders_begin(struct table *table)
{
    table_begin(table, heads, COLUMNS);
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

void holders_row(struct table *table, const mortise_info *info)
{
    char name[QUOTED_SIZE], host[4 * sizeof info->host], program[4 * sizeof info->program];
    char pid[DURATION_SIZE], token[DURATION_SIZE], waiters[DURATION_SIZE];
    char since[DURATION_SIZE + 8], until[DURATION_SIZE + 8];
    const bool held = info->held;

    table_row(table, (const char *[COLUMNS]){
                         printable(info->name, name, sizeof name),
                         held ? "held" : "free",
                         text_or_dash(held ? info->host : "", host, sizeof host),
                         number(held && info->pid > 0, (uint64_t)info->pid, pid),
                         text_or_dash(held ? info->program : "", program, sizeof program),
                         span(held ? info->held_ms : -1, "", " ago", since),
                         span(held ? info->remaining_ms : -1, "in ", "", until),
                         number(held && info->token > 0, info->token, token),
                         number(info->waiters >= 0, (uint64_t)info->waiters, waiters),
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

void holders_json(struct json *json, const mortise_info *info)
{
    json_text(json, "name", info->name);
    json_bool(json, "held", info->held);
    int_or_null(json, "waiters", info->waiters >= 0, info->waiters);
    if (!info->held)
        return;
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
    json_int(json, "leases", info->leases);
}
