/* wire.c - writes and reads the fields of Protocol Buffers. See wire.h. */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

enum type { TYPE_NUMBER = 0, TYPE_FIXED64 = 1, TYPE_BYTES = 2, TYPE_FIXED32 = 5 };

#define NUMBER_MAX 10 /* the longest number, in bytes */

/* ---- writing ------------------------------------------------------------------------------------------ */

static uint8_t *more(struct writer *writer, size_t size)
{
    if (!writer->failed && writer->capacity - writer->size < size) {
        size_t capacity = writer->capacity < 128 ? 256 : writer->capacity;
        while (capacity - writer->size < size)
            capacity *= 2;
        uint8_t *data = realloc(writer->data, capacity);
        writer->failed = data == NULL;
        if (data != NULL) {
            writer->data = data;
            writer->capacity = capacity;
        }
    }
    if (writer->failed)
        return NULL;
    writer->size += size;
    return writer->data + writer->size - size;
}

void write_raw(struct writer *writer, const void *data, size_t size)
{
    uint8_t *to = more(writer, size);
    if (to != NULL && size > 0)
        memcpy(to, data, size);
}

static size_t number_put(uint8_t *to, uint64_t number)
{
    size_t size = 0;
    while (number >= 0x80) {
        to[size++] = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    to[size++] = (uint8_t)number;
    return size;
}

static void put(struct writer *writer, uint64_t number)
{
    uint8_t text[NUMBER_MAX];
    write_raw(writer, text, number_put(text, number));
}

static void tag(struct writer *writer, unsigned field, enum type type)
{
    put(writer, (uint64_t)field << 3 | (uint64_t)type);
}

void write_chosen(struct writer *writer, unsigned field, uint64_t number)
{
    tag(writer, field, TYPE_NUMBER);
    put(writer, number);
}

void write_number(struct writer *writer, unsigned field, uint64_t number)
{
    if (number != 0)
        write_chosen(writer, field, number);
}

void write_bytes(struct writer *writer, unsigned field, const void *data, size_t size)
{
    tag(writer, field, TYPE_BYTES);
    put(writer, size);
    write_raw(writer, data, size);
}

size_t write_begin(struct writer *writer, unsigned field)
{
    tag(writer, field, TYPE_BYTES);
    return writer->size;
}

/* The length is known only now: moves the message to make room for it. */
void write_end(struct writer *writer, size_t mark)
{
    uint8_t text[NUMBER_MAX];
    size_t size = writer->size - mark, length = number_put(text, size);
    if (more(writer, length) == NULL)
        return;
    memmove(writer->data + mark + length, writer->data + mark, size);
    memcpy(writer->data + mark, text, length);
}

void writer_free(struct writer *writer)
{
    free(writer->data);
    *writer = (struct writer){0};
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static bool fail(struct reader *reader)
{
    reader->failed = true;
    reader->at = reader->end;
    return false;
}

static bool number_read(struct reader *reader, uint64_t *number)
{
    *number = 0;
    for (unsigned shift = 0; shift < 7 * NUMBER_MAX; shift += 7) {
        if (reader->at == reader->end)
            return fail(reader);
        uint8_t byte = *reader->at++;
        *number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return fail(reader);
}

static bool skip(struct reader *reader, size_t size)
{
    if ((size_t)(reader->end - reader->at) < size)
        return fail(reader);
    reader->at += size;
    return true;
}

bool read_field(struct reader *reader, struct field *field)
{
    uint64_t number;
    *field = (struct field){0};
    if (reader->failed || reader->at == reader->end || !number_read(reader, &number))
        return false;
    if (number >> 3 == 0 || number >> 3 > UINT32_MAX)
        return fail(reader);
    field->number = (unsigned)(number >> 3);
    switch (number & 7) {
    case TYPE_NUMBER:
        return number_read(reader, &field->value);
    case TYPE_BYTES:
        if (!number_read(reader, &number) || number > (uint64_t)(reader->end - reader->at))
            return fail(reader);
        field->is_bytes = true;
        field->bytes = (struct bytes){reader->at, (size_t)number};
        return skip(reader, (size_t)number);
    case TYPE_FIXED64: /* no message that we know has these two types; a later server's might */
        return skip(reader, 8);
    case TYPE_FIXED32:
        return skip(reader, 4);
    default:
        return fail(reader);
    }
}
