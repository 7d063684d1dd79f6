/* slot_map.c - what a server of a cluster answers: the map of slots (CLUSTER SLOTS), and redirects. */
#include "topology.h"

#include "text.h"

#include <stdio.h>
#include <string.h>

/* ---- redirects ------------------------------------------------------------------------------------------ */

/* "host:port". The host may have colons. If it is empty or "?", it is the host of `from`. */
static bool read_address(const char *text, size_t length, const struct endpoint *from,
                         struct endpoint *to)
{
    const char *colon = memrchr(text, ':', length);
    if (colon == NULL)
        return false;
    size_t host_len = (size_t)(colon - text);
    size_t port_len = length - host_len - 1;
    if (host_len == 0 || (host_len == 1 && text[0] == '?')) {
        text = from->host;
        host_len = strlen(from->host);
    }
    return endpoint_set(to, text, host_len, colon + 1, port_len);
}

bool topology_read_redirect(const redisReply *reply, const struct endpoint *from, unsigned *slot,
                            struct endpoint *to)
{
    const char *text = reply->str, *end = reply->str + reply->len;
    size_t word_len, slot_len, at_len;
    text_part(&text, end, ' ', &word_len);
    const char *number = text_part(&text, end, ' ', &slot_len);
    const char *at = text_part(&text, end, ' ', &at_len);
    uint64_t which = text_number(number, slot_len);
    if (slot_len == 0 || which >= KEY_SLOTS || at_len == 0)
        return false;
    *slot = (unsigned)which;
    return read_address(at, at_len, from, to);
}

/* ---- CLUSTER SLOTS ------------------------------------------------------------------------------------ */

bool topology_read_server(const redisReply *reply, const struct endpoint *from, struct endpoint *at)
{
    char port[8];
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
        reply->element[1]->type != REDIS_REPLY_INTEGER || reply->element[1]->integer <= 0 ||
        reply->element[1]->integer > 65535)
        return false;
    const redisReply *host = reply->element[0];
    bool named = host->type == REDIS_REPLY_STRING && host->len > 0 && !text_is(host, "?");
    const char *name = named ? host->str : from->host;
    int length = snprintf(port, sizeof(port), "%d", (int)reply->element[1]->integer);
    return endpoint_set(at, name, named ? host->len : strlen(name), port, (size_t)length);
}

bool topology_is_portless(const redisReply *server)
{
    return server->type == REDIS_REPLY_ARRAY && server->elements >= 2 &&
           server->element[1]->type == REDIS_REPLY_INTEGER && server->element[1]->integer == 0;
}

/* {first slot, last slot, master, replica …} */
static bool is_range(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements >= 3 &&
           reply->element[0]->type == REDIS_REPLY_INTEGER &&
           reply->element[1]->type == REDIS_REPLY_INTEGER && reply->element[0]->integer >= 0 &&
           reply->element[0]->integer <= reply->element[1]->integer &&
           reply->element[1]->integer < KEY_SLOTS;
}

bool topology_is_map(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (!is_range(reply->element[i]))
            return false;
    return true;
}
