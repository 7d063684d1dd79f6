/* table.c - rows and columns: aligned for people, with tabs for programs.
 *
 * Cells hold printable text (see printable()). */
#include "table.h"

#include "output.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void table_begin(struct table *table, const char *const *heads, size_t columns)
{
    *table = (struct table){.heads = heads, .columns = columns};
}

void table_row(struct table *table, const char *const *texts)
{
    if (table->rows == table->capacity) {
        table->capacity = table->capacity ? table->capacity * 2 : 32;
        table->cells = must_have(
            reallocarray(table->cells, table->capacity * table->columns, sizeof *table->cells));
    }
    for (size_t i = 0; i < table->columns; i++)
        table->cells[table->rows * table->columns + i] = must_have(strdup(texts[i]));
    table->rows++;
}

static const char *cell(const struct table *table, size_t row, size_t column)
{
    return table->cells[row * table->columns + column];
}

static size_t column_width(const struct table *table, size_t column)
{
    size_t width = columns_of(table->heads[column]);

    for (size_t row = 0; row < table->rows; row++) {
        size_t w = columns_of(cell(table, row, column));
        width = w > width ? w : width;
    }
    return width;
}

/* Writes at most `room` columns of the text; returns how many columns it wrote. */
static size_t write_cut(const char *text, size_t room, FILE *out)
{
    size_t columns = columns_of(text);

    if (columns <= room) {
        fputs(text, out);
        return columns;
    }
    size_t used = 0;
    while (*text != '\0') {
        size_t length = utf8_length(text);
        char piece[8] = {0};
        memcpy(piece, text, length ? length : 1);
        size_t wide = columns_of(piece);
        if (used + wide > room)
            break;
        fputs(piece, out);
        used += wide;
        text += length ? length : 1;
    }
    return used;
}

static void pad(size_t count, FILE *out)
{
    for (; count > 0; count--)
        putc(' ', out);
}

static void write_line(const struct table *table, const char *const *texts, const size_t *widths,
                       size_t room, FILE *out)
{
    for (size_t i = 0; i < table->columns && room > 0; i++) {
        size_t used = write_cut(texts[i], room, out);
        room -= used;
        if (i + 1 == table->columns)
            break;
        size_t gap = widths[i] - (used < widths[i] ? used : widths[i]) + 2;
        gap = gap < room ? gap : room;
        pad(gap, out);
        room -= gap;
    }
}

void table_write(const struct table *table, FILE *out, size_t width, bool colour)
{
    size_t *widths = must_have(calloc(table->columns, sizeof *widths));
    size_t room = width ? width : SIZE_MAX;

    for (size_t i = 0; i < table->columns; i++)
        widths[i] = column_width(table, i);
    fputs(colour ? "\033[1m" : "", out);
    write_line(table, table->heads, widths, room, out);
    fputs(colour ? "\033[0m\n" : "\n", out);
    for (size_t row = 0; row < table->rows; row++) {
        const char *const *texts = (const char *const *)&table->cells[row * table->columns];
        write_line(table, texts, widths, room, out);
        putc('\n', out);
    }
    free(widths);
}

void table_write_plain(const struct table *table, FILE *out)
{
    for (size_t row = 0; row < table->rows; row++) {
        for (size_t i = 0; i < table->columns; i++)
            fprintf(out, "%s%c", cell(table, row, i), i + 1 < table->columns ? '\t' : '\n');
    }
}

void table_print(const struct table *table)
{
    if (on_terminal())
        table_write(table, stdout, 0, with_colour());
    else
        table_write_plain(table, stdout);
}

void table_end(struct table *table)
{
    for (size_t i = 0; i < table->rows * table->columns; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct table){0};
}
