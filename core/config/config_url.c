/* config_url.c - the parts of a URL as values: which schema row takes what.
 *
 * Rows with URL flags take their part. Query keys go to the rows of that name: first those of the core's
 * own section, then those of the driver, which the scheme names. A row that is not TEXT gets the path
 * without its leading '/' ("/3" is the number 3); if nothing is left, the value is not given. A part that
 * no row takes is an error, and so is a query key that neither schema knows, unless a row takes the URL
 * as a whole. Knows no module: the caller passes the schemas. */
#include "config/config_internal.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static bool has_part(const mortise_option *schema, size_t count, uint32_t part)
{
    for (size_t i = 0; i < count; i++)
        if ((schema[i].flags & part) != 0)
            return true;
    return false;
}

/* ---- From a URL ------------------------------------------------------------------------------ */

static const char *url_part(const struct url *url, uint32_t part)
{
    switch (part) {
    case MORTISE_OPTION_URL_SCHEME:
        return url->scheme;
    case MORTISE_OPTION_URL_USER:
        return url->user;
    case MORTISE_OPTION_URL_PASSWORD:
        return url->password;
    case MORTISE_OPTION_URL_AUTHORITY:
        return url->authority;
    default:
        return url->path;
    }
}

/* Whether no server was named, so that the driver would use its default. */
static bool lacks_host(const struct filling *f)
{
    for (size_t i = 0; i < f->count; i++)
        if ((f->schema[i].flags & MORTISE_OPTION_URL_AUTHORITY) != 0)
            return f->config->url.authority == NULL && !f->values[i].given &&
                   f->schema[i].default_text != NULL;
    return false;
}

/* "etcd:db1" means a host, and not a path on this host. */
static bool is_lost_host(const struct filling *f, uint32_t part, const char *text)
{
    return part == MORTISE_OPTION_URL_PATH && text[0] != '/' && text[0] != '\0' && lacks_host(f);
}

static mortise_status give_part(struct filling *f, size_t index, uint32_t part)
{
    const mortise_option *option = &f->schema[index];
    const char *text = url_part(&f->config->url, part), *scheme = f->config->url.scheme;

    if (text != NULL && part == MORTISE_OPTION_URL_PATH && option->type != MORTISE_OPTION_TEXT)
        text += text[0] == '/';
    if (text == NULL || (text[0] == '\0' && option->type != MORTISE_OPTION_TEXT))
        return MORTISE_OK;
    const struct given given = {.key = option->key, .text = text};
    if (option->type == MORTISE_OPTION_TEXT && is_lost_host(f, part, text))
        return value_failed(f, &given, "a host is written %s://HOST, and a path %s:/PATH", scheme,
                            scheme);
    return config_give(f, index, &given);
}

/* The parts that no row takes. */
static mortise_status check_parts(const struct filling *f)
{
    const struct url *url = &f->config->url;
    const struct given here = {0};
    const char *what = NULL;

    if (has_part(f->schema, f->count, MORTISE_OPTION_URL_WHOLE))
        return MORTISE_OK;
    if (url->password != NULL && !has_part(f->schema, f->count, MORTISE_OPTION_URL_PASSWORD))
        what = "no password";
    else if (url->user != NULL && !has_part(f->schema, f->count, MORTISE_OPTION_URL_USER))
        what = "no user";
    else if (url->authority != NULL && !has_part(f->schema, f->count, MORTISE_OPTION_URL_AUTHORITY))
        what = "no host (a path is written SCHEME:/path)";
    else if (url->path != NULL && strcmp(url->path, "/") != 0 &&
             !has_part(f->schema, f->count, MORTISE_OPTION_URL_PATH))
        what = "no path";
    return what == NULL ? MORTISE_OK
                        : value_failed(f, &here, "%s takes %s in a URL", f->section, what);
}

static mortise_status give_parts(struct filling *f)
{
    mortise_status status = check_parts(f);

    for (size_t i = 0; i < f->count; i++)
        for (uint32_t part = MORTISE_OPTION_URL_SCHEME;
             part < MORTISE_OPTION_URL_WHOLE && status == MORTISE_OK; part <<= 1)
            if ((f->schema[i].flags & part) != 0)
                status = give_part(f, i, part);
    return status;
}

static mortise_status give_whole(struct filling *f)
{
    for (size_t i = 0; i < f->count; i++) {
        if ((f->schema[i].flags & MORTISE_OPTION_URL_WHOLE) == 0)
            continue;
        char *whole = url_whole(&f->config->url);
        if (whole == NULL)
            return config_no_memory(f->error);
        const struct given given = {.key = f->schema[i].key, .text = whole};
        mortise_status status = config_give(f, i, &given);
        text_wipe(whole);
        if (status != MORTISE_OK)
            return status;
    }
    return MORTISE_OK;
}

/* Refuses the keys that a URL may not set: its scheme is the driver, and only a file may say where modules are (R11). */
static mortise_status check_core_key(const struct filling *f, size_t index)
{
    const struct given here = {0};

    if (f->schema == core_options && index == CORE_DRIVER)
        return value_failed(f, &here, "driver: the scheme of a URL names it");
    if (f->schema == core_options && index == CORE_MODULE_PATH)
        return value_failed(f, &here, "module_path can be set in a config file only");
    return MORTISE_OK;
}

static bool is_core_key(const char *key)
{
    bool file;
    return config_find_option(core_options, CORE_OPTION_COUNT, key, &file) < CORE_OPTION_COUNT;
}

static mortise_status give_items(struct filling *f)
{
    mortise_status status = MORTISE_OK;

    for (size_t i = 0; i < f->config->url.item_count && status == MORTISE_OK; i++) {
        struct url_item *item = &f->config->url.items[i];
        struct given given = {.key = item->key, .text = item->text};
        size_t index = config_find_option(f->schema, f->count, item->key, &given.file);
        if (index < f->count && (f->schema == core_options || !is_core_key(item->key))) {
            item->known = true;
            item->secret |= (f->schema[index].flags & MORTISE_OPTION_SECRET) != 0 && !given.file;
            status = check_core_key(f, index);
            if (status == MORTISE_OK)
                status = config_give(f, index, &given);
        } else if (is_core_key(item->key)) {
            item->known = true; /* whether or not that section was read before */
        } else if (item->near == NULL) {
            const char *nearest = config_nearest_key(f->schema, f->count, item->key);
            item->near = nearest == NULL ? NULL : strdup(nearest);
        }
    }
    return status;
}

mortise_status config_fill_from_url(struct filling *f)
{
    const struct given scheme = {.key = "driver", .text = f->config->url.scheme};
    bool core = f->schema == core_options;

    if (!core && strcmp(f->section, f->config->driver) != 0)
        return MORTISE_OK; /* another module: it gets its defaults */
    mortise_status status = give_items(f);
    if (status == MORTISE_OK && core)
        return config_give(f, CORE_DRIVER, &scheme);
    if (status == MORTISE_OK)
        status = give_parts(f);
    if (status != MORTISE_OK || !has_part(f->schema, f->count, MORTISE_OPTION_URL_WHOLE))
        return status;
    status = give_whole(f);
    for (size_t i = 0; i < f->config->url.item_count; i++)
        f->config->url.items[i].passed = true;
    return status;
}

mortise_status config_check_url(const struct config *config, mortise_error *error)
{
    char hint[QUOTED_SIZE];

    for (size_t i = 0; i < config->url.item_count; i++) {
        const struct url_item *item = &config->url.items[i];
        if (!item->known && !item->passed)
            return config_failed(config, 0, NULL, error, "unknown key \"%.64s\"%s", item->key,
                                 did_you_mean(item->near, hint, sizeof(hint)));
    }
    return MORTISE_OK;
}
