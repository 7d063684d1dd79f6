/* text.c - see text.h. */
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MIN 2048

void text_free(struct text *text)
{
    free(text->bytes);
    *text = (struct text){.bytes = NULL};
}

void text_clear(struct text *text)
{
    text->len = 0;
    text->failed = false;
}

/* Makes room for so many bytes at the end of the text. NULL: out of memory. */
static char *more(struct text *text, size_t len)
{
    size_t size = text->size > 0 ? text->size : SIZE_MIN;
    while (size < text->len + len)
        size *= 2;
    if (size > text->size) {
        char *bytes = realloc(text->bytes, size);
        text->failed = text->failed || bytes == NULL;
        if (bytes == NULL)
            return NULL;
        text->bytes = bytes;
        text->size = size;
    }
    text->len += len;
    return text->bytes + text->len - len;
}

void text_add(struct text *text, const char *bytes, size_t len)
{
    char *to = more(text, len);
    if (to != NULL)
        memcpy(to, bytes, len);
}

void text_string(struct text *text, const char *string)
{
    text_add(text, string, strlen(string));
}

void text_hex(struct text *text, const void *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    char *to = more(text, 2 * len + 3);
    if (to == NULL)
        return;
    *to++ = 'X';
    *to++ = '\'';
    for (size_t i = 0; i < len; i++) {
        *to++ = digits[from[i] >> 4];
        *to++ = digits[from[i] & 15];
    }
    *to = '\'';
}

static void add_value(struct text *text, const struct value *value)
{
    char number[32];
    if (value->is_number)
        text_add(text, number, (size_t)snprintf(number, sizeof(number), "%" PRId64, value->number));
    else if (value->bytes != NULL)
        text_hex(text, value->bytes, value->len);
    else
        text_add(text, "NULL", 4);
}

void text_fill(struct text *text, const char *format, const struct values *values)
{
    for (;;) {
        size_t len = strcspn(format, "$");
        text_add(text, format, len);
        if (format[len] == '\0')
            return;
        size_t i = (size_t)(format[len + 1] - 'a');
        if (i < values->count)
            add_value(text, &values->at[i]);
        format += len + 2;
    }
}

/* ---- values ------------------------------------------------------------------------------------ */

void value_bytes(struct values *values, const void *bytes, size_t len)
{
    values->at[values->count++] = (struct value){.bytes = len > 0 ? bytes : "", .len = len};
}

void value_bytes_or_null(struct values *values, const void *bytes, size_t len)
{
    values->at[values->count++] = (struct value){.bytes = len > 0 ? bytes : NULL, .len = len};
}

void value_number(struct values *values, int64_t number)
{
    values->at[values->count++] = (struct value){.number = number, .is_number = true};
}

static void bind_bytes(void *to, const void *bytes, size_t len)
{
    if (bytes != NULL)
        value_bytes(to, bytes, len);
    else
        value_bytes_or_null(to, NULL, 0);
}

static void bind_number(void *to, int64_t number)
{
    value_number(to, number);
}

const struct binder text_binder = {
    .number = bind_number, .span = bind_number, .time = bind_number, .bytes = bind_bytes};
