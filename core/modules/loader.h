/* loader.h - from a config section to an opened module.
 *
 * Finds the shared object by name in the module path (R11), checks the handshake field by field, reads
 * the module's values by its schema and calls its `open`. Knows no backend. The host table that a module
 * gets is made by the core (host_prepare, in host.c); the loader only passes it on. */
#ifndef MORTISE_CORE_LOADER_H
#define MORTISE_CORE_LOADER_H

#include "config/config.h"

#include <stdatomic.h>

/* One opened module. The host is the first member, so a mortise_host * can be cast to its instance. */
struct instance {
    mortise_host host;
    void *core;             /* the core's own (struct pump *), set by host_prepare */
    struct instance *above; /* the plugin that opened it, or NULL */
    /* The list begins with the instance that was opened last. They are closed in the order of the list, so a module is
     * closed before those below it. */
    struct instance *next;
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
    /* The instance is about to be freed: drops everything that it asked the host for. */
    void (*host_forget)(struct instance *instance, void *argument);
    void *argument;
};

/* Loads and opens the module of `section` ("sqlite", "redis:old"), of the wanted kind or of any kind (0). A
 * section with ':' must be in the config. On failure nothing is left open. If a module is not found, the
 * message lists each path tried; if the handshake fails, it names the file and the field. */
mortise_status loader_open(struct loader *loader, const char *section, struct instance *above,
                           uint32_t wanted_kind, struct instance **instance, mortise_error *error);
/* Closes all instances, a module above before those below it, and unloads them. (Libraries stay mapped
 * under sanitizers, so that reports have names.) */
void loader_close_all(struct loader *loader);

/* After the stack was opened: writes the findings about the sections of the config, as " | note: text…", like the answer to a
 * ping. Without a finding it does not change text. */
void loader_findings(const struct loader *loader, char *text, size_t size);

/* For mortise_modules(): every NAME.so of the module path, handshake done, not opened. */
mortise_status loader_scan(const struct config *config, mortise_module_callback each,
                           void *user_data, mortise_error *error);
/* For mortise_schema(): loads one module without opening it, calls `use` with its table. */
mortise_status loader_peek(const struct config *config, const char *name,
                           void (*use)(const mortise_module *module, void *argument),
                           void *argument, mortise_error *error);

#endif
