/* host_text.h - which texts of a config are accepted as the host of a server. */
#ifndef MORTISE_LIB_HOST_TEXT_H
#define MORTISE_LIB_HOST_TEXT_H

#include <stdbool.h>
#include <string.h>

/* False for a URL, or a text with a user and a password: messages would show them. A text with colons must be an IPv6
 * address. */
static inline bool host_text_ok(const char *text)
{
    const char *rest = text + strspn(text, "0123456789ABCDEFabcdef:.");
    bool is_address = *rest == '\0' || *rest == '%';
    return strpbrk(text, "@/[]?") == NULL && (is_address || strchr(text, ':') == NULL);
}

/* The part of a text that messages may show, if the text is no host, or is a list with such a text. It has neither the user and
 * the password before an '@' nor the query of a URL. *length is 0 if it is not clear where these end. */
static inline const char *host_text_shown(const char *text, size_t *length)
{
    const char *sign = strrchr(text, '@'), *query = strchr(text, '?');
    const char *shown = sign == NULL ? text : sign + 1;
    *length = query != NULL && query < shown ? 0 : strcspn(shown, "?");
    return shown;
}

#endif
