/* config_file.c - the text of a config file, as sections and rows.
 *
 * The grammar is libinih's: [section], key = value or key: value, comments from ';' or '#' at the start
 * of a line, or from " ;" behind a value. This file checks each line before it gives the line to inih. On
 * its own, inih would cut long lines and names, skip text behind a ']', and take an indented key for part
 * of the value above. Its process-wide settings are not changed. This file adds:
 *
 * - Lines may be indented. A value that ends in a comma continues in the next line if that line is
 *   indented, so a long list can have several lines. (They are joined by a blank.)
 * - " #" inside a value is refused, because it was mostly meant as a comment.
 * - A key may be given once per section; a section may be continued further down.
 * - CR LF, a byte order mark and a last line without a newline are allowed. NUL and other control
 *   characters are errors, and so is a line that is neither a section nor a key. The message names file
 *   and line.
 *
 * Knows neither schemas nor what a value means. */
#include "config/config_internal.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_MAX 64
#define ROW_ID_SIZE (SECTION_MAX + KEY_MAX + 2)

/* ---- Files ----------------------------------------------------------------------------------- */

static bool file_failed(int fd, struct file *file, char *reason, size_t size, int error_number)
{
    char text[128];

    reason[0] = '\0'; /* out of memory */
    if (error_number == EFBIG)
        snprintf(reason, size, "is larger than 1 MiB");
    else if (error_number != ENOMEM)
        snprintf(reason, size, "cannot be read: %s%s", strerror_r(error_number, text, sizeof(text)),
                 error_number == ENOENT || error_number == ENOTDIR ? "; is the path right?"
                 : error_number == EACCES ? "; it must be readable for the user of this process"
                                          : "");
    if (fd >= 0)
        close(fd);
    file_free(file);
    return false;
}

/* Reads to the end or until the buffer is full; false with errno set. */
static bool read_all(int fd, struct file *file, size_t capacity)
{
    while (file->size < capacity) {
        ssize_t got = read(fd, file->text + file->size, capacity - file->size);
        if (got == 0)
            break;
        if (got > 0)
            file->size += (size_t)got;
        else if (errno != EINTR)
            return false;
    }
    file->text[file->size] = '\0';
    return true;
}

bool file_read(const char *path, struct file *file, char *reason, size_t size, bool *missing)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    memset(file, 0, sizeof(*file));
    *missing = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
    if (fd < 0 || fstat(fd, &st) != 0)
        return file_failed(fd, file, reason, size, errno);
    if (S_ISDIR(st.st_mode))
        return file_failed(fd, file, reason, size, EISDIR);
    file->owner = st.st_uid;
    file->mode = st.st_mode;
    file->text = malloc(FILE_SIZE_MAX + 2);
    if (file->text == NULL || !read_all(fd, file, FILE_SIZE_MAX + 1))
        return file_failed(fd, file, reason, size, file->text == NULL ? ENOMEM : errno);
    if (file->size > FILE_SIZE_MAX)
        return file_failed(fd, file, reason, size, EFBIG);
    close(fd);
    return true;
}

void file_free(struct file *file)
{
    if (file->text != NULL)
        explicit_bzero(file->text, file->size);
    free(file->text);
    file->text = NULL;
}

/* ---- Sections and rows ----------------------------------------------------------------------- */

struct section *config_find_section(const struct config *config, const char *name)
{
    struct section *section;

    HASH_FIND_STR(config->sections, name, section);
    return section;
}

static struct section *add_section(struct config *config, const char *name, size_t length,
                                   size_t line)
{
    struct section *section = calloc(1, sizeof(*section) + length + 1);

    if (section == NULL)
        return NULL;
    memcpy(section->name, name, length);
    section->line = line;
    HASH_ADD_STR(config->sections, name, section);
    if (section->hh.tbl != NULL)
        return section;
    free(section);
    return NULL;
}

/* False: no key is as long as that. */
static bool row_id(const char *section, const char *key, char *id, size_t size)
{
    int length = snprintf(id, size, "%s\n%s", section, key);
    return length > 0 && (size_t)length < size;
}

/* Allocates nothing, so that a lack of memory cannot look like a missing row. */
struct row *config_find_row(const struct config *config, const char *section, const char *key)
{
    struct row *row = NULL;
    char id[ROW_ID_SIZE];

    if (row_id(section, key, id, sizeof(id)))
        HASH_FIND_STR(config->rows, id, row);
    return row;
}

static void row_free(struct row *row)
{
    if (row->text != NULL)
        explicit_bzero(row->text, strlen(row->text));
    free(row->text);
    free(row->id);
    free(row);
}

static struct row *add_row(struct config *config, const struct section *section, const char *key,
                           const char *text, size_t line)
{
    struct row *row = calloc(1, sizeof(*row));
    char id[ROW_ID_SIZE];

    if (row == NULL || !row_id(section->name, key, id, sizeof(id))) {
        free(row);
        return NULL;
    }
    row->section = section;
    row->line = line;
    row->text = strdup(text);
    row->id = strdup(id);
    if (row->text != NULL && row->id != NULL) {
        row->key = row->id + strlen(section->name) + 1;
        HASH_ADD_KEYPTR(hh, config->rows, row->id, strlen(row->id), row);
    }
    if (row->hh.tbl != NULL)
        return row;
    row_free(row);
    return NULL;
}

void config_free_rows(struct config *config)
{
    struct row *row, *next_row;
    struct section *section, *next_section;

    HASH_ITER (hh, config->rows, row, next_row) {
        HASH_DEL(config->rows, row);
        row_free(row);
    }
    HASH_ITER (hh, config->sections, section, next_section) {
        HASH_DEL(config->sections, section);
        free(section);
    }
}

/* ---- Line by line ---------------------------------------------------------------------------- */

struct reader {
    struct config *config;
    const char *at, *end;
    size_t line;
    struct section *section;
    struct row *open; /* its value ended in a comma */
    mortise_status status;
    mortise_error *error;
};

/* One line without its end and the blanks around it. */
struct line {
    const char *text;
    size_t length;
    bool indented;
};

#define line_failed(r, ...)                                                                        \
    ((r)->status = config_failed((r)->config, (r)->line, NULL, (r)->error, __VA_ARGS__))

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool next_line(struct reader *r, struct line *line)
{
    if (r->at == r->end)
        return false;
    const char *start = r->at;
    const char *stop = memchr(start, '\n', (size_t)(r->end - start));
    r->at = stop == NULL ? r->end : stop + 1;
    if (stop == NULL)
        stop = r->end;
    if (stop > start && stop[-1] == '\r')
        stop--;
    while (stop > start && is_blank(stop[-1]))
        stop--;
    line->indented = start < stop && is_blank(*start);
    while (start < stop && is_blank(*start))
        start++;
    line->text = start;
    line->length = (size_t)(stop - start);
    r->line++;
    return true;
}

static bool printable(struct reader *r, const struct line *line)
{
    for (size_t i = 0; i < line->length; i++) {
        unsigned char c = (unsigned char)line->text[i];
        if (c == '\0')
            line_failed(r, "a NUL byte: is this a text file?");
        else if ((c < ' ' && c != '\t') || c == 127)
            line_failed(r, "a control character (0x%02x)", c);
        if (r->status != MORTISE_OK)
            return false;
    }
    return true;
}

/* NAME or NAME:INSTANCE */
static bool section_name_sound(const char *name, size_t length)
{
    const char *colon = NULL;

    for (size_t i = 0; i < length; i++) {
        char c = name[i];
        if (c == ':' && colon == NULL && i > 0)
            colon = name + i;
        else if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                   c == '_' || c == '-' || (c == '.' && colon != NULL)))
            return false;
    }
    return length > 0 && length <= SECTION_MAX && name[length - 1] != ':';
}

static void begin_section(struct reader *r, const struct line *line)
{
    char quoted[QUOTED_SIZE], name[SECTION_MAX + 1];
    const char *close = memchr(line->text, ']', line->length);

    if (close == NULL) {
        line_failed(r, "the ']' of the section is missing");
        return;
    }
    size_t length = (size_t)(close - line->text - 1);
    const char *after = close + 1, *end = line->text + line->length;
    while (after < end && is_blank(*after))
        after++;
    if (!section_name_sound(line->text + 1, length))
        line_failed(r,
                    "bad section name %s: letters, digits, '_' and '-', to %d of them, and perhaps "
                    "':' and the name of an instance",
                    quote_name(line->text + 1, length, quoted, sizeof(quoted)), SECTION_MAX);
    else if (after < end && *after != ';' && *after != '#')
        line_failed(r, "text after the ']' of a section");
    if (r->status != MORTISE_OK)
        return;
    memcpy(name, line->text + 1, length);
    name[length] = '\0';
    r->section = config_find_section(r->config, name);
    if (r->section == NULL)
        r->section = add_section(r->config, name, length, r->line);
    if (r->section == NULL)
        r->status = config_no_memory(r->error);
}

/* Where a comment begins behind a value: a ';' after a blank, as in inih. */
static size_t comment_at(const char *text, size_t length)
{
    for (size_t i = 1; i < length; i++)
        if (text[i] == ';' && is_blank(text[i - 1]))
            return i;
    return length;
}

static bool ends_in_comma(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && text[length - 1] == ',';
}

static bool value_sound(struct reader *r, const char *text)
{
    for (const char *hash = strchr(text, '#'); hash != NULL; hash = strchr(hash + 1, '#'))
        if (hash == text || is_blank(hash[-1])) {
            line_failed(
                r, "a '#' in a value: a comment after a value begins with ';' (for a '#' in the "
                   "value itself, use ${NAME})");
            return false;
        }
    return true;
}

static void continue_row(struct reader *r, const struct line *line)
{
    size_t length = comment_at(line->text, line->length);
    char *text;

    while (length > 0 && is_blank(line->text[length - 1]))
        length--;
    if (asprintf(&text, "%s %.*s", r->open->text, (int)length, line->text) < 0) {
        r->status = config_no_memory(r->error);
        return;
    }
    explicit_bzero(r->open->text, strlen(r->open->text));
    free(r->open->text);
    r->open->text = text;
    if (value_sound(r, text) && !ends_in_comma(text))
        r->open = NULL;
}

/* Handles the lines that inih need not see. True: inih has to see this one. */
static bool is_for_inih(struct reader *r, const struct line *line)
{
    if (line->length == 0) {
        r->open = NULL;
        return false;
    }
    if (!printable(r, line) || line->text[0] == ';' || line->text[0] == '#')
        return false;
    if (r->open != NULL && line->indented) {
        continue_row(r, line);
        return false;
    }
    r->open = NULL;
    if (line->text[0] == '[')
        begin_section(r, line);
    return true;
}

/* The ini_reader, which works like fgets(). inih gets an empty line for each line that it need not see, so
 * that it counts the lines as we do. */
static char *read_line(char *buffer, int size, void *context)
{
    struct reader *r = context;
    struct line line;
    size_t room = size > 2 ? (size_t)size - 2 : 0; /* for "\n\0" */

    if (r->status != MORTISE_OK || !next_line(r, &line))
        return NULL;
    if (!is_for_inih(r, &line))
        line.length = 0;
    else if (line.length > room)
        line_failed(r,
                    "the line is longer than %zu bytes (a list may continue on an indented line "
                    "after a comma; any other text can be ${NAME}, and a secret in KEY_file)",
                    room);
    if (r->status != MORTISE_OK)
        return NULL;
    memcpy(buffer, line.text, line.length);
    memcpy(buffer + line.length, "\n", 2);
    return buffer;
}

/* ---- Key by key ------------------------------------------------------------------------------ */

static bool key_sound(struct reader *r, const char *key)
{
    char quoted[QUOTED_SIZE];
    const char *shown = quote_name(key, strlen(key), quoted, sizeof(quoted));

    if (*key == '\0')
        line_failed(r, "no key before the '='");
    else if (r->section == NULL)
        line_failed(r, "key %s comes before any [section]", shown);
    else if (strlen(key) > KEY_MAX)
        line_failed(r, "the key %s is longer than %d bytes", shown, KEY_MAX);
    else {
        const struct row *row = config_find_row(r->config, r->section->name, key);
        if (row == NULL)
            return true;
        r->status = config_failed(r->config, r->line, r->section->name, r->error,
                                  "key %s is given twice: also in line %zu", shown, row->line);
    }
    return false;
}

/* The ini_handler; 0 is an error. */
static int take_value(void *context, const char *section, const char *key, const char *text)
{
    struct reader *r = context;

    (void)section; /* begin_section has set it */
    if (key == NULL || text == NULL) {
        line_failed(r, "expected \"[section]\" or \"key = value\"");
        return 0;
    }
    if (!key_sound(r, key) || !value_sound(r, text))
        return 0;
    struct row *row = add_row(r->config, r->section, key, text, r->line);
    if (row == NULL) {
        r->status = config_no_memory(r->error);
        return 0;
    }
    r->open = ends_in_comma(text) ? row : NULL;
    return 1;
}

mortise_status config_parse_file(struct config *config, const char *text, size_t size,
                                 mortise_error *error)
{
    struct reader r = {.config = config, .at = text, .end = text + size, .error = error};

    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        r.at += 3;
    int line = ini_parse_stream(read_line, &r, take_value, &r);
    if (line == 0 || (r.status != MORTISE_OK && (size_t)line >= r.line))
        return r.status;
    if (line < 0)
        return config_no_memory(error);
    return config_failed(config, (size_t)line, NULL, error,
                         "expected \"[section]\" or \"key = value\"");
}
