/* config_share.c - how another process of the same user opens the same config, and whether it reads the same. */
#include "config/config_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool name_file(const struct config *config, char *text, size_t size)
{
    char path[PATH_MAX];
    if (realpath(config->source, path) == NULL)
        return false;
    int length = snprintf(text, size, "%s%s%s", path, config->section_named ? "#" : "",
                          config->section_named ? config->driver : "");
    return length > 0 && (size_t)length < size;
}

static bool name_url(const struct config *config, char *text, size_t size)
{
    char *url = url_for_others(&config->url);
    bool fits = url != NULL && strlen(url) < size;
    if (fits)
        snprintf(text, size, "%s", url);
    free(url);
    return fits;
}

bool config_for_others(const struct config *config, char *text, size_t size)
{
    if (config->origin == FROM_FILE)
        return name_file(config, text, size);
    if (config->origin == FROM_URL)
        return name_url(config, text, size);
    text[0] = '\0';
    return true;
}

/* FNV-1a, with the NUL, so that two texts do not run together. */
static uint64_t add_text(uint64_t hash, const char *text)
{
    const unsigned char *at = (const unsigned char *)(text == NULL ? "" : text);
    for (;; at++) {
        hash = (hash ^ *at) * UINT64_C(1099511628211);
        if (*at == '\0')
            return hash;
    }
}

static uint64_t add_row(uint64_t hash, const struct row *row)
{
    char reason[REASON_SIZE];
    char *expanded = config_expand(row->text, reason, sizeof(reason));
    hash = add_text(add_text(hash, row->id), expanded);
    text_wipe(expanded);
    return hash;
}

/* Nothing says where the default driver keeps its data: its own default, which depends on the environment. */
static bool has_default_place(const struct config *config)
{
    if (strcmp(config->driver, MORTISE_DEFAULT_DRIVER) != 0 || config->url.path != NULL)
        return false;
    for (const struct row *row = config->rows; row != NULL; row = row->hh.next)
        if (strcmp(row->section->name, config->driver) == 0)
            return false;
    return true;
}

uint64_t config_print(const struct config *config)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    hash = add_text(hash, config->driver);
    for (const struct row *row = config->rows; row != NULL; row = row->hh.next)
        hash = add_row(hash, row);
    hash = add_text(hash, config->url.raw_base);
    for (size_t i = 0; i < config->url.item_count; i++)
        hash = add_text(hash, config->url.items[i].raw);
    if (has_default_place(config)) {
        hash = add_text(hash, secure_getenv("XDG_STATE_HOME"));
        hash = add_text(hash, secure_getenv("HOME"));
    }
    return hash == 0 ? 1 : hash;
}
