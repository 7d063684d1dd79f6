/* script.c - the driver's own scripts, and the functions that call them. */
#include "redis.h"

static const struct link_script scripts[SCRIPT_COUNT] = {
#include "scripts.inc"
};

bool script_put(struct driver *driver, enum script script, unsigned keys, unsigned arguments,
                bool asking)
{
    if (asking && keys > 1) {
        script_call_asking(&driver->link, &scripts[script], keys, arguments);
        return true;
    }
    return script_call(&driver->link, &scripts[script], &driver->known[script], keys, arguments);
}

void script_put_text(struct link *link, enum script script, unsigned keys, unsigned arguments)
{
    bool known = false;
    script_call(link, &scripts[script], &known, keys, arguments);
}
