/* args.c - see args.h. Numbers are sent in PostgreSQL's binary form: big-endian. */
#include "args.h"

#include <stdlib.h>
#include <string.h>

void args_begin(struct args *args)
{
    free(args->copy);
    args->copy = NULL;
    args->count = 0;
    args->bytes = 0;
}

static void add(struct args *args, const void *value, size_t len)
{
    int i = args->count++;
    args->values[i] = value;
    args->lengths[i] = (int)len;
    args->bytes += len;
}

void args_bytes(struct args *args, const void *bytes, size_t len)
{
    add(args, len > 0 ? bytes : "", len);
}

void args_bytes_or_null(struct args *args, const void *bytes, size_t len)
{
    add(args, len > 0 ? bytes : NULL, len);
}

void args_text(struct args *args, const char *text)
{
    add(args, text, text != NULL ? strlen(text) : 0);
}

static void add_number(struct args *args, uint64_t value, size_t size, size_t padded)
{
    unsigned char *at = args->numbers[args->count];
    memset(at, 0, padded);
    for (size_t i = 0; i < size; i++)
        at[i] = (unsigned char)(value >> (8 * (size - 1 - i)));
    add(args, at, padded);
}

void args_int8(struct args *args, int64_t value)
{
    add_number(args, (uint64_t)value, 8, 8);
}

void args_int4(struct args *args, int32_t value)
{
    add_number(args, (uint32_t)value, 4, 4);
}

void args_bool(struct args *args, bool value)
{
    add_number(args, value, 1, 1);
}

void args_interval(struct args *args, int64_t us)
{
    add_number(args, (uint64_t)us, 8, 16); /* then days and months */
}

void args_time(struct args *args, int64_t us)
{
    add_number(args, us == 0 ? (uint64_t)INT64_MIN : (uint64_t)us, 8, 8);
}

static bool is_number(const struct args *args, int i)
{
    return args->values[i] == (const char *)args->numbers[i];
}

bool args_keep(struct args *args)
{
    char *copy = malloc(args->bytes + 1), *at = copy;
    if (copy == NULL)
        return false;
    for (int i = 0; i < args->count; i++) {
        if (args->values[i] == NULL || args->lengths[i] == 0 || is_number(args, i))
            continue;
        memcpy(at, args->values[i], (size_t)args->lengths[i]);
        args->values[i] = at;
        at += args->lengths[i];
    }
    free(args->copy);
    args->copy = copy;
    return true;
}

/* ---- for lib/sql/remote ------------------------------------------------------------------------- */

static void bind_number(void *to, int64_t number)
{
    args_int8(to, number);
}

static void bind_span(void *to, int64_t us)
{
    args_interval(to, us);
}

static void bind_time(void *to, int64_t us)
{
    args_time(to, us);
}

static void bind_bytes(void *to, const void *bytes, size_t len)
{
    add(to, bytes, len);
}

const struct binder args_binder = {
    .number = bind_number, .span = bind_span, .time = bind_time, .bytes = bind_bytes};
