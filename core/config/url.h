/* url.h - a configuration in one line: scheme://user:password@authority/path?key=value&key=value.
 *
 * Takes such a URL apart. Knows no schema: the driver's rows say which part means what. */
#ifndef MORTISE_CORE_URL_H
#define MORTISE_CORE_URL_H

#include <mortise/driver.h>

struct url_item {
    char *raw; /* "key=value" as it was written */
    char *key;
    char *text;  /* decoded */
    char *near;  /* the key, of the schemas read so far, that may have been meant; or NULL */
    bool known;  /* a schema has the key */
    bool passed; /* the driver got the key with the URL as a whole */
    bool secret; /* a schema says that the value must not be shown */
};

/* Missing parts are NULL. All are decoded, except `authority` and the raw ones. */
struct url {
    char *scheme; /* in lower case */
    char *user, *password;
    char *authority; /* "a:1,[::1]:2", without user and password */
    char *path;      /* with its leading '/', if it has one */
    char *raw_base;  /* all before the '?' */
    char *raw_path;
    struct url_item *items;
    size_t item_count;
};

/* Whether `where` is a URL and not a path: a letter, then letters, digits, '+', '-' and '.', then ':'. */
bool url_is(const char *where);
/* Takes a URL apart. CONFIG: the message shows only the scheme, because it is unknown where the password ends in
 * a malformed URL. NOMEM. On failure *url is empty. */
mortise_status url_parse(const char *text, struct url *url, mortise_error *error);
void url_free(struct url *url);

/* How much may be shown of what should be a path, a host or a name: a connection string of libpq ("host=db password=…") has a '='
 * before any '/', and its rest is not shown. All of any other text. */
size_t url_shown_length(const char *text);
/* The URL with scheme, authority, path and those query keys that `shown` accepts. For free(). */
char *url_without_secrets(const struct url *url, bool (*shown)(const char *key));
/* The URL as it was written, less the query keys that are known. For free(). */
char *url_whole(const struct url *url);
/* The URL as it was written, for another process of this user; for free(). NULL: it has a password, a secret query key, or
 * a query key that no schema knows. Call it after all schemas were read. */
char *url_for_others(const struct url *url);

#endif
