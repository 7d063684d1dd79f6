/* wire.h - the encoding of Protocol Buffers: writes and reads the fields of one message. No I/O; knows no particular
 * message.
 *
 * The reader never reads outside of the bytes that it gets, and sets `failed` if they make no sense. */
#ifndef MORTISE_ETCD_WIRE_H
#define MORTISE_ETCD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    const uint8_t *data;
    size_t size;
};

/* ---- writing: into memory that grows. Without memory, `failed` is set, and the output is not complete ------ */

struct writer {
    uint8_t *data;
    size_t size, capacity;
    bool failed;
};

void write_raw(struct writer *writer, const void *data, size_t size);
/* Leaves a 0 out, because 0 is the default. Writes negative numbers as two's complement (int64). */
void write_number(struct writer *writer, unsigned field, uint64_t number);
/* The same, but also writes 0: for a member of a `oneof`. */
void write_chosen(struct writer *writer, unsigned field, uint64_t number);
void write_bytes(struct writer *writer, unsigned field, const void *data, size_t size);
/* A nested message is what is written between begin and end. Returns the mark for write_end(). */
size_t write_begin(struct writer *writer, unsigned field);
void write_end(struct writer *writer, size_t mark);
void writer_free(struct writer *writer);

/* ---- reading --------------------------------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at, *end;
    bool failed; /* the bytes make no sense */
};

struct field {
    unsigned number;
    bool is_bytes;
    uint64_t value;     /* of a number */
    struct bytes bytes; /* of a text or a nested message; points into the message */
};

static inline struct reader reader_of(struct bytes bytes)
{
    return (struct reader){.at = bytes.data, .end = bytes.data + bytes.size};
}

/* False: the message has ended, or `failed` is set. */
bool read_field(struct reader *reader, struct field *field);

#endif
