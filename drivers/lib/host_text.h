/* host_text.h - which text of a config is a host of a server. */
#ifndef MORTISE_LIB_HOST_TEXT_H
#define MORTISE_LIB_HOST_TEXT_H

#include <stdbool.h>
#include <string.h>

/* Not a URL, nor with a user and a password: these would stand in messages. What has colons is an IPv6 address. */
static inline bool host_text_ok(const char *text)
{
    const char *rest = text + strspn(text, "0123456789ABCDEFabcdef:.");
    bool is_address = *rest == '\0' || *rest == '%';
    return strpbrk(text, "@/[]?") == NULL && (is_address || strchr(text, ':') == NULL);
}

/* What may be shown of a text that is no host, or of a list with one: neither a user and a password before an '@', nor the query
 * of a URL. *length: 0 if it is not clear where these end. */
static inline const char *host_text_shown(const char *text, size_t *length)
{
    const char *sign = strrchr(text, '@'), *query = strchr(text, '?');
    const char *shown = sign == NULL ? text : sign + 1;
    *length = query != NULL && query < shown ? 0 : strcspn(shown, "?");
    return shown;
}

#endif
