/* text.h - puts together statements without parameters, for a dialect that sends several of them as one text. A value becomes
 * a hexadecimal or decimal literal of standard SQL, so nothing in it can be taken for a part of the statement (R10). Knows no
 * server. */
#ifndef MORTISE_SQL_TEXT_H
#define MORTISE_SQL_TEXT_H

#include "remote.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VALUES_MAX 10

struct text {
    char *bytes; /* owned */
    size_t len, size;
    bool failed; /* out of memory: the rest was left out */
};

struct value {
    const void *bytes; /* NULL: see is_number */
    size_t len;
    int64_t number;
    bool is_number; /* false and no bytes: null */
};

struct values {
    size_t count;
    struct value at[VALUES_MAX];
};

void text_free(struct text *text);
void text_clear(struct text *text); /* keeps its memory */
void text_add(struct text *text, const char *bytes, size_t len);
void text_string(struct text *text, const char *string);
void text_hex(struct text *text, const void *bytes, size_t len);
/* A template in which $a is the first value, $b the second one, and so on. */
void text_fill(struct text *text, const char *format, const struct values *values);

void value_bytes(struct values *values, const void *bytes, size_t len); /* not copied */
void value_bytes_or_null(struct values *values, const void *bytes, size_t len);
void value_number(struct values *values, int64_t number);
/* Binds to a struct values. All kinds of numbers become the same. */
extern const struct binder text_binder;

#endif
