/* script.c - a script is called by its digest, or by its text if this connection has not sent the text yet. If the server says
 * that it does not know the digest (NOSCRIPT), the caller sends it again. */
#include "script.h"

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
