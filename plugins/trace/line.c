/* line.c - an event as a line of JSON. Bytes that are not UTF-8 appear as U+FFFD in the text; a second key then has
 * the exact bytes in hexadecimal. Knows nothing of files. */
#include "internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

_Static_assert(TEXT_SIZE >= 2 * LINE_MAX_SIZE, "room for a line and one of dropped events");

static const char digits[] = "0123456789abcdef";

bool text_has_room(const struct text *text)
{
    return text->used + (size_t)2 * LINE_MAX_SIZE <= sizeof(text->bytes);
}

static void put(struct text *text, const char *bytes, size_t size)
{
    if (size <= sizeof(text->bytes) - text->used) {
        memcpy(text->bytes + text->used, bytes, size);
        text->used += size;
    }
}

static void put_words(struct text *text, const char *words)
{
    put(text, words, strlen(words));
}

static void put_format(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put_format(struct text *text, const char *format, ...)
{
    char piece[128];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(piece, sizeof(piece), format, arguments);
    va_end(arguments);
    if (length > 0)
        put(text, piece, (size_t)length < sizeof(piece) ? (size_t)length : sizeof(piece) - 1);
}

static void put_hex(struct text *text, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;
    for (size_t i = 0; i < size; i++)
        put(text, (const char[]){digits[from[i] >> 4], digits[from[i] & 15]}, 2);
}

/* The length of the UTF-8 sequence that begins here; 0: none does (overlong, surrogate, cut off). */
static size_t utf8_length(const unsigned char *at, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = at[0] < 0x80             ? 1
                    : (at[0] & 0xe0) == 0xc0 ? 2
                    : (at[0] & 0xf0) == 0xe0 ? 3
                    : (at[0] & 0xf8) == 0xf0 ? 4
                                             : 0;
    if (length <= 1 || length > left)
        return length <= left ? length : 0;
    uint32_t point = at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (at[i] & 0x3f);
    }
    bool surrogate = point >= 0xd800 && point < 0xe000;
    return point < least[length] || point > 0x10ffff || surrogate ? 0 : length;
}

/* Characters that reorder or break the line in which they are shown: marks, embeddings, overrides and isolates of
 * direction, the separators of lines and paragraphs; and the C1 controls, which some terminals execute. They could
 * hide parts of a name. */
static bool is_misleading(const unsigned char *at, size_t length)
{
    if (length == 2)
        return (at[0] == 0xc2 && at[1] < 0xa0) || /* U+0080 to U+009F */
               (at[0] == 0xd8 && at[1] == 0x9c);  /* U+061C */
    if (length != 3 || at[0] != 0xe2)
        return false;
    return (at[1] == 0x80 &&
            (at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae))) ||
           (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9);
}

static void put_character(struct text *text, const unsigned char *at, size_t length)
{
    if (length == 0)
        put_words(text, "\\ufffd");
    else if (at[0] == '"' || at[0] == '\\')
        put(text, (const char[]){'\\', (char)at[0]}, 2);
    else if (at[0] < 0x20 || at[0] == 0x7f)
        put(text, (const char[]){'\\', 'u', '0', '0', digits[at[0] >> 4], digits[at[0] & 15]}, 6);
    else if (is_misleading(at, length))
        put_format(text, "\\u%04x",
                   length == 2 ? (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu)
                               : (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu));
    else
        put(text, (const char *)at, length);
}

/* ,"key":"…" and, if it is no UTF-8, ,"key_hex":"…" */
static void put_text(struct text *text, const char *key, const char *bytes, size_t size)
{
    const unsigned char *from = (const unsigned char *)bytes;
    bool foreign = false;
    put_format(text, ",\"%s\":\"", key);
    for (size_t i = 0; i < size;) {
        size_t length = utf8_length(from + i, size - i);
        put_character(text, from + i, length);
        foreign |= length == 0;
        i += length == 0 ? 1 : length;
    }
    put_words(text, "\"");
    if (!foreign)
        return;
    put_format(text, ",\"%s_hex\":\"", key);
    put_hex(text, bytes, size);
    put_words(text, "\"");
}

/* What every line begins with. */
static void begin(struct text *text, const struct trace *trace, const char *event, int64_t at_ns)
{
    put_format(text, "{\"event\":\"%s\",\"at_ns\":%" PRId64, event, at_ns);
    put_format(text, ",\"client\":\"%s\"", trace->client);
}

static void end(struct text *text)
{
    put_words(text, "}\n");
}

static const char *word_of(uint32_t kind)
{
    static const char *const words[] = {
#define WORD(name, number, word) [number] = word,
        MORTISE_EVENT_MAP(WORD)
#undef WORD
    };
    return kind < sizeof(words) / sizeof(words[0]) ? words[kind] : "unknown";
}

static const char *status_word(int32_t status)
{
    switch (status) {
#define STATUS_WORD(name, code, text)                                                              \
    case code:                                                                                     \
        return #name;
        MORTISE_STATUS_MAP(STATUS_WORD)
#undef STATUS_WORD
    default:
        return "UNKNOWN";
    }
}

static bool is_zero(const mortise_grant_id *grant)
{
    static const mortise_grant_id zero;
    return memcmp(grant, &zero, sizeof(zero)) == 0;
}

/* Keys without a meaning for the event are left out. */
void line_event(struct text *text, const struct trace *trace, const struct record *record)
{
    const char *name = (const char *)(record + 1), *owner = name + record->name_len;
    begin(text, trace, word_of(record->kind), record->at_ns);
    put_text(text, "name", name, record->name_len);
    if (record->owner_len > 0)
        put_text(text, "owner", owner, record->owner_len);
    if (record->mode == MORTISE_SHARED)
        put_words(text, ",\"mode\":\"shared\"");
    if (record->permits != 0)
        put_format(text, ",\"permits\":%" PRIu32, record->permits);
    if (record->caller != 0)
        put_format(text, ",\"caller\":%" PRIu64, record->caller);
    if (record->lease != 0)
        put_format(text, ",\"lease\":%" PRIu64, record->lease);
    if (!is_zero(&record->grant)) {
        put_words(text, ",\"grant\":\"");
        put_hex(text, &record->grant, sizeof(record->grant));
        put_words(text, "\"");
    }
    if (record->token != 0)
        put_format(text, ",\"token\":%" PRIu64, record->token);
    if (record->deadline_ns > 0) /* a deadline that was seen to have passed is not written */
        put_format(text, ",\"deadline_ns\":%" PRId64, record->deadline_ns);
    if (record->status != MORTISE_OK)
        put_format(text, ",\"status\":\"%s\"", status_word(record->status));
    end(text);
}

void line_dropped(struct text *text, const struct trace *trace, int64_t at_ns, uint64_t count)
{
    begin(text, trace, "dropped", at_ns);
    put_format(text, ",\"count\":%" PRIu64, count);
    end(text);
}

int64_t line_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* The first line: which process writes, and both clocks, so that a reader can convert the other lines' instants to
 * wall time. */
void line_opened(struct text *text, const struct trace *trace)
{
    struct timespec wall;
    const char *host = trace->note, *pid = strchr(host, '\n');
    const char *program = pid == NULL ? NULL : strchr(pid + 1, '\n');
    clock_gettime(CLOCK_REALTIME, &wall);
    begin(text, trace, "opened", line_now());
    put_format(text, ",\"wall_ms\":%" PRId64, (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000);
    put_text(text, "section", trace->section, strlen(trace->section));
    if (program != NULL) {
        put_text(text, "host", host, (size_t)(pid - host));
        put_format(text, ",\"pid\":%.*s", (int)(program - pid - 1), pid + 1);
        put_text(text, "program", program + 1, strlen(program + 1));
    }
    end(text);
}

void line_closed(struct text *text, const struct trace *trace, uint64_t events, uint64_t dropped)
{
    begin(text, trace, "closed", line_now());
    put_format(text, ",\"events\":%" PRIu64 ",\"dropped\":%" PRIu64, events, dropped);
    end(text);
}
