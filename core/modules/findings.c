/* findings.c - what `mortise doctor` has to know about the config file: a module has no section, but another section looks like
 * the one that was meant. This is only a finding, because several programs may share a file. */
#include "modules/loader_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_read(const struct loader *loader, const char *section)
{
    const struct instance *at = loader->instances;
    while (at != NULL && strcmp(at->section, section) != 0)
        at = at->next;
    return at != NULL;
}

/* Whether the section belongs to a module. Also true if that is unknown, so that there is no finding. */
static bool is_of_a_module(const struct folders *folders, const char *section)
{
    char name[MODULE_NAME_MAX + 1], *path = NULL;
    size_t length = strcspn(section, ":");

    if (!module_name_sound(section, length))
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)length, section);
    bool none = folders_find(folders, name, &path, NULL) == MORTISE_OK && path == NULL;
    free(path);
    return !none;
}

/* The key with which a section of this module names servers; NULL: it has none. */
static const char *key_of_servers(const mortise_module *module)
{
    for (size_t i = 0; i < module->option_count; i++)
        if ((module->options[i].flags & MORTISE_OPTION_URL_AUTHORITY) != 0)
            return module->options[i].key;
    return NULL;
}

/* Returns a section that has the key and belongs to no module: it may have been meant. NULL: there is none. */
static const char *meant(const struct loader *loader, const char *key)
{
    const char *section = config_section_with(loader->config, NULL, key);
    struct folders folders;

    if (section == NULL || folders_make(loader->config, &folders, NULL) != MORTISE_OK)
        return NULL;
    while (section != NULL && (is_read(loader, section) || is_of_a_module(&folders, section)))
        section = config_section_with(loader->config, section, key);
    folders_free(&folders);
    return section;
}

void loader_findings(const struct loader *loader, char *text, size_t size)
{
    size_t used = 0;

    for (const struct instance *at = loader->instances; at != NULL && used < size; at = at->next) {
        const char *key = key_of_servers(&at->module), *section = NULL;
        if (key != NULL && !config_has_section(loader->config, at->section))
            section = meant(loader, key);
        if (section != NULL)
            used += (size_t)snprintf(text + used, size - used,
                                     " | note: the config has no section [%s], so its defaults are "
                                     "used, and nothing reads [%s], which has \"%s\"; if that is "
                                     "the one, call it [%s]",
                                     at->section, section, key, at->section);
    }
}
