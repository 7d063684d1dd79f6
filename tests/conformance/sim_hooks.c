/* sim_hooks.c - the hooks of the sim driver, whose server is in this process: they use its script instead of a shell
 * script. */
#include "conformance.h"

#include <sim.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const sim_api *sim;
static int away, frozen, losing; /* rules */

static bool find_sim(void)
{
    mortise_module_info info = {.size = sizeof info};
    size_t last = 0;
    while (!sim && mortise_module_at(subject.looker, last, &info))
        last++;
    void *library = sim || last == 0 ? NULL : dlopen(info.path, RTLD_NOW | RTLD_NOLOAD);
    if (library)
        sim = dlsym(library, SIM_API_SYMBOL);
    return sim != NULL;
}

static bool none_left(void)
{
    size_t claims = sim->claims(), waiters = sim->waiters(NULL), ghosts = sim->ghosts(),
           outstanding = sim->outstanding();
    if (claims + waiters + ghosts + outstanding == 0)
        return true;
    fprintf(stderr, "left in the sim: %zu claims, %zu waiters, %zu requests, %zu ops\n", claims,
            waiters, ghosts, outstanding);
    return false;
}

bool sim_hook(const char *verb)
{
    if (!find_sim()) /* "find": while a client is open, through which it is found */
        return false;
    if (strcmp(verb, "stop") == 0) {
        away = sim->script(&(sim_rule){.fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE});
    } else if (strcmp(verb, "start") == 0) {
        sim->end(away);
        sim->news_all();
    } else if (strcmp(verb, "freeze") == 0) {
        frozen = sim->script(&(sim_rule){.hold_request = true});
    } else if (strcmp(verb, "thaw") == 0) {
        sim->end(frozen);
        sim->let_go(frozen);
    } else if (strcmp(verb, "lose") == 0) {
        losing =
            sim->script(&(sim_rule){.kinds = SIM_OP(MORTISE_OP_ACQUIRE) | SIM_OP(MORTISE_OP_RENEW) |
                                             SIM_OP(MORTISE_OP_RELEASE),
                                    .fate = SIM_LOSE_REPLY,
                                    .status = MORTISE_INDETERMINATE});
    } else if (strcmp(verb, "pass") == 0) {
        sim->end(losing);
    } else if (strcmp(verb, "left") == 0) {
        return none_left();
    }
    return true;
}
