/* script.c - a script is called by its digest, or by its text if this connection has not sent the text yet. If the server says
 * that it does not know the digest (NOSCRIPT), the caller sends it again. */
#include "script.h"

#include <stdio.h>

/* To the server this is a call with one key: the other keys become arguments, and a command with several keys becomes one
 * command for each key. */
static const char as_one_key[] =
    "local KEYS, ARGV, call = {KEYS[1], unpack(ARGV, 1, %u)}, {unpack(ARGV, %u)}, redis.call\n"
    "local redis = setmetatable({call = function(verb, ...)\n"
    "if verb ~= 'exists' and verb ~= 'del' or select('#', ...) == 1 then return call(verb, ...) "
    "end\n"
    "local sum = 0\n"
    "for _, key in ipairs({...}) do sum = sum + call(verb, key) end\n"
    "return sum\n"
    "end}, {__index = redis})\n";

void script_call_asking(struct link *link, const struct link_script *script, unsigned keys,
                        unsigned arguments)
{
    char head[sizeof(as_one_key) + 20];
    int length = snprintf(head, sizeof(head), as_one_key, keys - 1, keys);
    const struct link_part parts[] = {{head, (size_t)length}, {script->text, script->length}};
    link_command(link, 3 + keys + arguments);
    link_argument(link, "EVAL", 4);
    link_parts(link, parts, 2);
    link_number(link, 1);
}

bool script_call(struct link *link, const struct link_script *script, bool *known, unsigned keys,
                 unsigned arguments)
{
    bool by_text = !*known;
    *known = true; /* what follows comes after it */
    link_command(link, 3 + keys + arguments);
    if (by_text) {
        link_argument(link, "EVAL", 4);
        link_argument(link, script->text, script->length);
    } else {
        link_raw(link, script->call, SCRIPT_CALL_SIZE);
    }
    link_number(link, keys);
    return by_text;
}
