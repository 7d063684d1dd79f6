/* loader.h - from a config section to an opened module.
 *
 * Finds the shared object by name in the module path (R11), checks the handshake field by field, reads
 * the module's values by its schema and calls its `open`. Knows no backend. The host table that a module
 * gets is made by the core (host_prepare, in host.c); the loader only hands it on. */
#ifndef MORTISE_CORE_LOADER_H
#define MORTISE_CORE_LOADER_H

#include "config/config.h"

#include <stdatomic.h>

/* One opened module. The host is the first member: a mortise_host * is its instance. */
struct instance {
    mortise_host host;
    void *core;             /* the core's own (struct pump *), set by host_prepare */
    struct instance *above; /* the plugin that opened it, or NULL */
    struct instance *next; /* the opening order, last opened first: the order of closing is this one
                              * for stacks, since a module above is closed before those below */
    char *section;         /* "redis:old" */
    char *path;            /* the file it came from */
    void *library;         /* of dlopen */
    mortise_module module; /* a copy; fields that an older module does not have are zero */
    mortise_value *values;
    mortise_below below; /* for the plugin above */
    void *ctx;           /* of module.open; NULL until then */
    uint32_t capabilities;
};

struct loader {
    struct config *config;
    const char *client_id; /* 32 hex digits */
    const char *note;
    const char *name_space;     /* of the config, or NULL */
    const char *top;            /* for observers: NULL until the stack is open */
    const char *names_begin;    /* likewise */
    struct instance *instances; /* all that were opened */
    atomic_bool closing;        /* loader_close_all() */
    /* Fills instance->host and ->core before the module's open is called. */
    void (*host_prepare)(struct instance *instance, void *argument);
    /* The instance is about to be freed: whatever it asked the host for must not come any more. */
    void (*host_forget)(struct instance *instance, void *argument);
    void *argument;
};

/* Loads and opens the module of `section` ("sqlite", "redis:old"), of a wanted kind or any (0). A
 * section with ':' must stand in the config. On failure nothing is left open. The message of a module
 * that is not found lists each path tried; of a handshake that fails names file and field. */
mortise_status loader_open(struct loader *loader, const char *section, struct instance *above,
                           uint32_t wanted_kind, struct instance **instance, mortise_error *error);
/* Closes all instances, a module above before those below it, and unloads them. (Libraries stay mapped
 * under sanitizers, so that reports have names.) */
void loader_close_all(struct loader *loader);

/* What there is to say of the sections of the config, after the stack was opened: " | note: text…", as in the answer to a ping.
 * Leaves text as it is if there is nothing. */
void loader_findings(const struct loader *loader, char *text, size_t size);

/* For mortise_modules(): every NAME.so of the module path, handshake done, not opened. */
mortise_status loader_scan(const struct config *config, mortise_module_callback each,
                           void *user_data, mortise_error *error);
/* For mortise_schema(): loads one module without opening it, calls `use` with its table. */
mortise_status loader_peek(const struct config *config, const char *name,
                           void (*use)(const mortise_module *module, void *argument),
                           void *argument, mortise_error *error);

#endif
