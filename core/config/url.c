/* url.c - takes apart a URL that configures a client.
 *
 * Stricter than a browser, because a lock on the wrong server is worse than an error: a URL that could
 * be read in two ways is refused. A '@' in a path and a '#' must be written %40 and %23. (If a password
 * has an unescaped '/', '?' or '#', its rest would be taken for a path, and shown.) Every host needs a
 * name, and every port a number; a key may be in the query only once. User, password, path and the
 * values of the query are percent-decoded; '+' is a plus. Knows no schema. */
#include "config/url.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define URL_SIZE_MAX 8192

struct parsing {
    struct url *url;
    mortise_error *error;
};

static mortise_status url_failed(const struct parsing *p, const char *what)
{
    return failed(p->error, MORTISE_CONFIG, "%s URL: %s", p->url->scheme, what);
}

static mortise_status out_of_memory(const struct parsing *p)
{
    return failed(p->error, MORTISE_NOMEM, "out of memory while a URL was read");
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ---- Decoding -------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* False: a bad escape. */
static bool decode_to(const char *from, size_t length, char *to)
{
    for (size_t i = 0; i < length; i++) {
        if (from[i] != '%') {
            *to++ = from[i];
            continue;
        }
        int high = i + 2 < length ? hex_digit(from[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(from[i + 2]) : -1;
        if (low < 0 || (high == 0 && low == 0))
            return false;
        *to++ = (char)(high * 16 + low);
        i += 2;
    }
    *to = '\0';
    return true;
}

static mortise_status decode(const struct parsing *p, const char *from, size_t length, char **text)
{
    *text = malloc(length + 1);
    if (*text == NULL)
        return out_of_memory(p);
    if (decode_to(from, length, *text))
        return MORTISE_OK;
    free(*text);
    *text = NULL;
    return url_failed(p, "a '%' must be followed by two hex digits, and not by 00");
}

/* ---- Authority ------------------------------------------------------------------------------- */

static bool port_sound(const char *at, size_t length)
{
    unsigned port = 0;

    if (length == 0 || length > 5)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!is_digit(at[i]))
            return false;
        port = port * 10 + (unsigned)(at[i] - '0');
    }
    return port >= 1 && port <= 65535;
}

static const char *bracket_problem(const char *host, size_t length)
{
    const char *close = memchr(host, ']', length);

    if (close == NULL || close == host + 1)
        return "an IPv6 address is written [address] or [address]:port";
    size_t after = length - (size_t)(close + 1 - host);
    if (after > 0 && (close[1] != ':' || !port_sound(close + 2, after - 1)))
        return "a port must be a number from 1 to 65535";
    return NULL;
}

/* One of "name", "name:port", "[v6]", "[v6]:port"; NULL: sound. */
static const char *host_problem(const char *host, size_t length)
{
    if (length > 0 && host[0] == '[')
        return bracket_problem(host, length);
    const char *colon = memchr(host, ':', length);
    size_t name = colon == NULL ? length : (size_t)(colon - host);
    if (name == 0)
        return "a host is missing";
    if (colon != NULL && !port_sound(colon + 1, length - name - 1))
        return "a port must be a number from 1 to 65535 (in a password, ':' is written %3A, '/' "
               "%2F, "
               "'?' %3F and '@' %40; an IPv6 address is written in brackets)";
    return NULL;
}

static const char *hosts_problem(const char *hosts)
{
    for (const char *at = hosts;; at++) {
        size_t length = strcspn(at, ",");
        const char *problem = host_problem(at, length);
        if (problem != NULL)
            return problem;
        at += length;
        if (*at == '\0')
            return NULL;
    }
}

/* user or user:password, without the '@' */
static mortise_status parse_user(const struct parsing *p, const char *text, size_t length)
{
    const char *colon = memchr(text, ':', length);
    size_t user = colon == NULL ? length : (size_t)(colon - text);
    mortise_status status = MORTISE_OK;

    if (user > 0)
        status = decode(p, text, user, &p->url->user);
    if (status == MORTISE_OK && colon != NULL)
        status = decode(p, colon + 1, length - user - 1, &p->url->password);
    return status;
}

/* The part between "//" and the path. */
static mortise_status parse_authority(const struct parsing *p, const char *text, size_t length)
{
    const char *at = memrchr(text, '@', length);
    const char *hosts = at == NULL ? text : at + 1;
    size_t hosts_length = length - (size_t)(hosts - text);

    if (at != NULL) {
        mortise_status status = parse_user(p, text, (size_t)(at - text));
        if (status != MORTISE_OK)
            return status;
    }
    if (hosts_length == 0)
        return MORTISE_OK;
    p->url->authority = strndup(hosts, hosts_length);
    if (p->url->authority == NULL)
        return out_of_memory(p);
    const char *problem = hosts_problem(p->url->authority);
    return problem == NULL ? MORTISE_OK : url_failed(p, problem);
}

/* ---- Path and query -------------------------------------------------------------------------- */

static mortise_status parse_path(const struct parsing *p, const char *text, size_t length)
{
    if (length == 0)
        return MORTISE_OK;
    if (memchr(text, '@', length) != NULL)
        return url_failed(p, "an '@' in the path is written %40, and a '/' in a password %2F");
    p->url->raw_path = strndup(text, length);
    if (p->url->raw_path == NULL)
        return out_of_memory(p);
    return decode(p, text, length, &p->url->path);
}

static size_t key_length(const char *text)
{
    size_t length = 0;

    while (is_letter(text[length]) || is_digit(text[length]) ||
           (text[length] != '\0' && strchr("_-.", text[length]) != NULL))
        length++;
    return length;
}

static bool has_item(const struct url *url, const char *key)
{
    for (size_t i = 0; i < url->item_count; i++)
        if (strcmp(url->items[i].key, key) == 0)
            return true;
    return false;
}

static void item_free(struct url_item *item)
{
    if (item->text != NULL)
        explicit_bzero(item->text, strlen(item->text));
    if (item->raw != NULL)
        explicit_bzero(item->raw, strlen(item->raw));
    free(item->raw);
    free(item->key);
    free(item->text);
    free(item->near);
}

/* item->raw is set; on failure the caller frees the item. */
static mortise_status fill_item(const struct parsing *p, struct url_item *item)
{
    size_t key = key_length(item->raw);

    if (key == 0 || item->raw[key] != '=')
        return url_failed(p, "the query must be key=value, joined by '&'");
    item->key = strndup(item->raw, key);
    if (item->key == NULL)
        return out_of_memory(p);
    if (has_item(p->url, item->key))
        return failed(p->error, MORTISE_CONFIG, "%s URL: the query has \"%.64s\" twice",
                      p->url->scheme, item->key);
    return decode(p, item->raw + key + 1, strlen(item->raw + key + 1), &item->text);
}

static mortise_status add_item(const struct parsing *p, const char *text, size_t length)
{
    struct url *url = p->url;
    struct url_item *items = reallocarray(url->items, url->item_count + 1, sizeof(struct url_item));

    if (items == NULL)
        return out_of_memory(p);
    url->items = items;
    struct url_item item = {.raw = strndup(text, length)};
    mortise_status status = item.raw == NULL ? out_of_memory(p) : fill_item(p, &item);
    if (status == MORTISE_OK)
        items[url->item_count++] = item;
    else
        item_free(&item);
    return status;
}

static mortise_status parse_query(const struct parsing *p, const char *text)
{
    mortise_status status = MORTISE_OK;

    while (status == MORTISE_OK && *text != '\0') {
        size_t length = strcspn(text, "&");
        if (length > 0)
            status = add_item(p, text, length);
        text += length;
        text += *text == '&';
    }
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static size_t scheme_length(const char *text)
{
    size_t length = 0;

    if (!is_letter(text[0]))
        return 0;
    while (is_letter(text[length]) || is_digit(text[length]) ||
           (text[length] != '\0' && strchr("+-.", text[length]) != NULL))
        length++;
    return text[length] == ':' ? length : 0;
}

bool url_is(const char *where)
{
    return scheme_length(where) > 0;
}

static bool has_control(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            return true;
    return false;
}

static mortise_status parse_rest(const struct parsing *p, const char *rest)
{
    size_t base = strcspn(rest, "?");
    const char *path = rest, *query = rest + base;
    mortise_status status = MORTISE_OK;

    if (strlen(rest) > URL_SIZE_MAX)
        return url_failed(p, "it is longer than 8192 bytes");
    if (has_control(rest))
        return url_failed(p, "it holds a control character");
    if (strchr(rest, '#') != NULL)
        return url_failed(p, "a '#' is written %23");
    if (strncmp(rest, "//", 2) == 0) {
        path = rest + 2 + strcspn(rest + 2, "/?");
        status = parse_authority(p, rest + 2, (size_t)(path - rest - 2));
    }
    if (status == MORTISE_OK)
        status = parse_path(p, path, (size_t)(query - path));
    if (status == MORTISE_OK && *query == '?')
        status = parse_query(p, query + 1);
    return status;
}

static mortise_status parse_scheme(const struct parsing *p, const char *text, size_t length)
{
    p->url->scheme = strndup(text, length);
    p->url->raw_base = strndup(text, strcspn(text, "?"));
    if (p->url->scheme == NULL || p->url->raw_base == NULL)
        return out_of_memory(p);
    for (char *c = p->url->scheme; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    return MORTISE_OK;
}

mortise_status url_parse(const char *text, struct url *url, mortise_error *error)
{
    const struct parsing p = {.url = url, .error = error};
    size_t length = scheme_length(text);

    memset(url, 0, sizeof(*url));
    mortise_status status = parse_scheme(&p, text, length);
    if (status == MORTISE_OK)
        status = parse_rest(&p, text + length + 1);
    if (status != MORTISE_OK)
        url_free(url);
    return status;
}

static void secret_free(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}

void url_free(struct url *url)
{
    for (size_t i = 0; i < url->item_count; i++)
        item_free(&url->items[i]);
    free(url->items);
    free(url->scheme);
    free(url->user);
    secret_free(url->password);
    free(url->authority);
    free(url->path);
    free(url->raw_path);
    secret_free(url->raw_base);
    memset(url, 0, sizeof(*url));
}

static void write_items(FILE *out, const struct url *url, bool (*shown)(const char *key))
{
    char before = '?';

    for (size_t i = 0; i < url->item_count; i++) {
        const struct url_item *item = &url->items[i];
        if (shown != NULL ? !shown(item->key) : item->known)
            continue;
        fprintf(out, "%c%s", before, item->raw);
        before = '&';
    }
}

size_t url_shown_length(const char *text)
{
    size_t length = strcspn(text, "/=");

    return text[length] == '=' ? length + 1 : strlen(text);
}

/* Whether it was all. */
static bool write_shown(FILE *out, const char *text)
{
    size_t length = text == NULL ? 0 : url_shown_length(text);
    bool all = text == NULL || text[length] == '\0';

    fprintf(out, "%.*s%s", (int)length, text == NULL ? "" : text, all ? "" : "...");
    return all;
}

char *url_without_secrets(const struct url *url, bool (*shown)(const char *key))
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        return NULL;
    fprintf(out, "%s:", url->scheme);
    if (strncmp(url->raw_base + strlen(url->scheme) + 1, "//", 2) == 0)
        fprintf(out, "//");
    if (write_shown(out, url->authority))
        write_shown(out, url->raw_path);
    write_items(out, url, shown);
    bool bad = ferror(out) != 0;
    if (fclose(out) == 0 && !bad)
        return text;
    free(text);
    return NULL;
}

char *url_for_others(const struct url *url)
{
    char *text = NULL;
    size_t size = 0;
    for (size_t i = 0; i < url->item_count; i++)
        if (url->items[i].secret || !url->items[i].known)
            return NULL;
    FILE *out = url->password != NULL ? NULL : open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    fprintf(out, "%s", url->raw_base);
    for (size_t i = 0; i < url->item_count; i++)
        fprintf(out, "%c%s", i == 0 ? '?' : '&', url->items[i].raw);
    bool bad = ferror(out) != 0;
    if (fclose(out) == 0 && !bad)
        return text;
    free(text);
    return NULL;
}

char *url_whole(const struct url *url)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        return NULL;
    fprintf(out, "%s", url->raw_base);
    write_items(out, url, NULL);
    bool bad = ferror(out) != 0;
    if (fclose(out) == 0 && !bad)
        return text;
    free(text);
    return NULL;
}
