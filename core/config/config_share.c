/* config_share.c - how another process of the same user opens the same config, and whether it reads the same. */
#include "config/config_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The key that says where the default driver keeps its data; in a URL, the path says it, too. */
#define PLACE_KEY "path"

bool config_has_pipe(const struct config *config)
{
    return S_ISFIFO(config->file_mode) || config->secret_was_piped;
}

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
    if (config_has_pipe(config))
        return false;
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

/* The whole of a value; "" if there is none. For free(). */
static char *text_of(const struct row *row)
{
    char reason[REASON_SIZE];
    char *text = row == NULL ? NULL : config_expand(row->text, reason, sizeof(reason));
    return text == NULL ? strdup("") : text;
}

static const char *text_of_item(const struct url *url, const char *key)
{
    for (size_t i = 0; i < url->item_count; i++)
        if (strcmp(url->items[i].key, key) == 0)
            return url->items[i].text;
    return "";
}

/* Whether the config says where the module of that section keeps its data. */
static bool has_place(const struct config *config, const char *section)
{
    if (config->origin == FROM_URL && strcmp(section, config->driver) == 0)
        return (config->url.path != NULL && config->url.path[0] != '\0') ||
               text_of_item(&config->url, PLACE_KEY)[0] != '\0';
    char *place = text_of(config_find_row(config, section, PLACE_KEY));
    bool given = place != NULL && place[0] != '\0';
    text_wipe(place);
    return given;
}

/* Whether `text` is a section of the default driver that sets no place: the driver then has a default, which depends on the
 * environment. */
static bool lacks_place(const struct config *config, const char *text)
{
    size_t length = strlen(MORTISE_DEFAULT_DRIVER);
    return strncmp(text, MORTISE_DEFAULT_DRIVER, length) == 0 &&
           (text[length] == '\0' || text[length] == ':') && !has_place(config, text);
}

/* Whether such a section may be in the stack. A plugin names the section below it by the whole text of a value, but only the
 * plugin knows which of its values that is. */
static bool may_lack_place(const struct config *config)
{
    bool lacks = lacks_place(config, config->driver);
    for (size_t i = 0; i < config->url.item_count && !lacks; i++)
        lacks = lacks_place(config, config->url.items[i].text);
    for (const struct row *row = config->rows; row != NULL && !lacks; row = row->hh.next) {
        char *text = text_of(row);
        lacks = text == NULL || lacks_place(config, text);
        text_wipe(text);
    }
    return lacks;
}

static uint64_t add_row(uint64_t hash, const struct row *row)
{
    char *text = text_of(row);
    hash = add_text(add_text(hash, row->id), text);
    text_wipe(text);
    return hash;
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
    if (geteuid() != 0 && may_lack_place(config)) { /* root's place does not depend on them */
        hash = add_text(hash, secure_getenv("XDG_STATE_HOME"));
        hash = add_text(hash, secure_getenv("HOME"));
    }
    return hash == 0 ? 1 : hash;
}
