/* args.h - the values that are bound to a statement: binary, by pointer; numbers are kept in the struct. */
#ifndef MORTISE_POSTGRES_ARGS_H
#define MORTISE_POSTGRES_ARGS_H

#include "../lib/sql/remote/remote.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARGS_MAX 14

struct args {
    int count;
    const char *values[ARGS_MAX]; /* NULL: null */
    int lengths[ARGS_MAX];
    unsigned char numbers[ARGS_MAX][16];
    size_t bytes; /* of all values */
    char *copy;   /* owned: the memory that some values point into */
};

/* Binds to a struct args. */
extern const struct binder args_binder;

void args_begin(struct args *args); /* drops and frees the old values */
void args_bytes(struct args *args, const void *bytes, size_t len); /* not copied */
void args_bytes_or_null(struct args *args, const void *bytes, size_t len);
void args_text(struct args *args, const char *text); /* NULL: null. Not copied */
void args_int8(struct args *args, int64_t value);
void args_int4(struct args *args, int32_t value);
void args_bool(struct args *args, bool value);
void args_interval(struct args *args, int64_t us);
void args_time(struct args *args, int64_t us); /* since 2000; 0: long ago (-infinity) */
/* Copies all values that are not numbers into memory of its own. False: out of memory. */
bool args_keep(struct args *args);

#endif
