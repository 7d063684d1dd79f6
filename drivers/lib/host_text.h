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
    return strpbrk(text, "@/[]") == NULL && (is_address || strchr(text, ':') == NULL);
}

#endif
