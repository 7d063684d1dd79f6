/* script.c - the driver's own scripts, and what calls them. */
#include "internal.h"

static const struct link_script scripts[SCRIPT_COUNT] = {
#include "scripts.inc"
};

void script_begin(struct flight *flight, enum script script, unsigned keys, unsigned arguments)
{
    flight->script = script;
    flight->by_text = script_put(flight->driver, script, keys, arguments);
}

bool script_put(struct driver *driver, enum script script, unsigned keys, unsigned arguments)
{
    return script_call(&driver->link, &scripts[script], &driver->known[script], keys, arguments);
}
