/* json.c - JSON that is always valid, whatever bytes a name holds.
 *
 * If a text is not UTF-8, U+FFFD takes the place of each wrong byte, and a second member KEY_hex has all its bytes. */
#include "json.h"

#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void separate(struct json *json)
{
    if (json->follows)
        putc(',', json->out);
    json->follows = true;
}

void json_open(struct json *json, char bracket)
{
    separate(json);
    putc(bracket, json->out);
    json->follows = false;
}

void json_close(struct json *json, char bracket)
{
    putc(bracket, json->out);
    json->follows = true;
}

void json_key(struct json *json, const char *key)
{
    separate(json);
    fprintf(json->out, "\"%s\":", key);
    json->follows = false;
}

static void put_piece(struct json *json, const char *text, size_t length)
{
    unsigned char byte = (unsigned char)text[0];

    if (length == 0)
        fputs("\\ufffd", json->out);
    else if (byte < 0x20 || byte == 0x7f)
        fprintf(json->out, "\\u%04x", byte);
    else if (length == 2 && byte == 0xc2 && (unsigned char)text[1] < 0xa0) /* terminals obey it */
        fprintf(json->out, "\\u%04x", (unsigned char)text[1]);
    else if (byte == '"' || byte == '\\')
        fprintf(json->out, "\\%c", byte);
    else if (reordering_point(text, length) != 0)
        fprintf(json->out, "\\u%04x", reordering_point(text, length));
    else
        fwrite(text, 1, length, json->out);
}

void json_text(struct json *json, const char *key, const char *text)
{
    bool foreign = false;

    separate(json);
    fprintf(json->out, "\"%s\":\"", key);
    for (const char *at = text; *at != '\0';) {
        size_t length = utf8_length(at);
        foreign = foreign || length == 0;
        put_piece(json, at, length);
        at += length ? length : 1;
    }
    putc('"', json->out);
    if (!foreign)
        return;
    fprintf(json->out, ",\"%s_hex\":\"", key);
    for (const char *at = text; *at != '\0'; at++)
        fprintf(json->out, "%02x", (unsigned char)*at);
    putc('"', json->out);
}

void json_int(struct json *json, const char *key, int64_t number)
{
    separate(json);
    fprintf(json->out, "\"%s\":%" PRId64, key, number);
}

/* As text, so that no reader rounds it: tokens go up to 2^63, more than a double holds exactly. */
void json_uint(struct json *json, const char *key, uint64_t number)
{
    separate(json);
    fprintf(json->out, "\"%s\":\"%" PRIu64 "\"", key, number);
}

void json_bool(struct json *json, const char *key, bool value)
{
    separate(json);
    fprintf(json->out, "\"%s\":%s", key, value ? "true" : "false");
}

void json_null(struct json *json, const char *key)
{
    separate(json);
    fprintf(json->out, "\"%s\":null", key);
}
