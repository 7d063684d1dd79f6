/* names.c - writes and reads the parts of keys. See names.h. */
#include "names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789ABCDEF", small_digits[] = "0123456789abcdef";

static bool is_plain(unsigned char c)
{
    return c > ' ' && c < 0x7f && c != '/' && c != '%';
}

size_t name_write(const char *name, size_t name_len, char escaped[ESCAPED_MAX])
{
    char *to = escaped;
    for (size_t i = 0; i < name_len && i < MORTISE_NAME_MAX; i++) {
        unsigned char c = (unsigned char)name[i];
        if (is_plain(c)) {
            *to++ = (char)c;
            continue;
        }
        *to++ = '%';
        *to++ = digits[c >> 4];
        *to++ = digits[c & 15];
    }
    *to = '\0';
    return (size_t)(to - escaped);
}

static int digit_value(char c)
{
    const char *place = c == '\0' ? NULL : strchr(digits, c);
    return place == NULL ? -1 : (int)(place - digits);
}

size_t name_read(const char *escaped, size_t length, char *name, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        int c = (unsigned char)escaped[i];
        if (c == '%') { /* "%sessions" and the like are no locks */
            int high = i + 2 < length ? digit_value(escaped[i + 1]) : -1;
            int low = high < 0 ? -1 : digit_value(escaped[i + 2]);
            if (low < 0)
                return 0;
            c = high << 4 | low;
            if (is_plain((unsigned char)c)) /* each name has only one escaped form */
                return 0;
            i += 2;
        } else if (!is_plain((unsigned char)c))
            return 0;
        if (count == size)
            return 0;
        name[count++] = (char)c;
    }
    return count;
}

static void hex_write(const uint8_t *bytes, size_t size, char *hex)
{
    for (size_t i = 0; i < size; i++) {
        hex[2 * i] = small_digits[bytes[i] >> 4];
        hex[2 * i + 1] = small_digits[bytes[i] & 15];
    }
    hex[2 * size] = '\0';
}

void grant_write(const mortise_grant_id *grant, char hex[HEX_SIZE])
{
    hex_write(grant->bytes, MORTISE_GRANT_ID_SIZE, hex);
}

size_t contender_write(struct kind kind, const struct key_id *id, char text[CONTENDER_MAX])
{
    char hex[HEX_SIZE];
    hex_write(id->instance, INSTANCE_SIZE, hex);
    snprintf(hex + 2 * INSTANCE_SIZE, sizeof(hex) - 2 * INSTANCE_SIZE, "%06x%06x",
             id->series & 0xffffff, id->slot & 0xffffff);
    int length = kind.shared ? snprintf(text, CONTENDER_MAX, "%c%" PRIu32 "-%s", SHARED_BEGIN,
                                        kind.permits, hex)
                             : snprintf(text, CONTENDER_MAX, "%s", hex);
    return length < 0 ? 0 : (size_t)length;
}

static bool id_read(const char *text, size_t length, char id[HEX_SIZE])
{
    if (length != HEX_SIZE - 1)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\0' || strchr(small_digits, text[i]) == NULL)
            return false;
    memcpy(id, text, length);
    id[length] = '\0';
    return true;
}

/* A contender that is not of Mortise counts as exclusive. */
struct contender contender_read(const char *text, size_t length)
{
    struct contender contender = {0};
    char number[12] = "", *rest;
    if (id_read(text, length, contender.id) || length < 3 || text[0] != SHARED_BEGIN)
        return contender;
    const char *dash = memchr(text, '-', length);
    size_t size = dash == NULL ? 0 : (size_t)(dash - text) - 1;
    if (size == 0 || size >= sizeof(number))
        return contender;
    memcpy(number, text + 1, size);
    unsigned long long permits = strtoull(number, &rest, 10);
    if (number[0] < '0' || number[0] > '9' || *rest != '\0' || permits > UINT32_MAX ||
        !id_read(dash + 1, length - size - 2, contender.id))
        return contender;
    contender.kind = (struct kind){.shared = true, .permits = (uint32_t)permits};
    return contender;
}

const char *key_last(struct bytes key, size_t *length)
{
    const char *text = (const char *)key.data;
    const char *slash = key.size == 0 ? NULL : memrchr(text, '/', key.size);
    const char *last = slash == NULL ? text : slash + 1;
    *length = key.size - (size_t)(last - text);
    return last;
}
