/* table.h - rows of cells: aligned on a terminal, elsewhere with tabs and without the head line. */
#ifndef MORTISE_TOOLS_TABLE_H
#define MORTISE_TOOLS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct table {
    const char *const *heads;
    size_t columns;
    char **cells; /* row after row, each allocated */
    size_t rows, capacity;
};
void table_begin(struct table *table, const char *const *heads, size_t columns);
/* Adds a row: copies `columns` texts. */
void table_row(struct table *table, const char *const *texts);
/* Writes lines to `out`, aligned and cut to `width` columns (0: not cut). */
void table_write(const struct table *table, FILE *out, size_t width, bool colour);
void table_write_plain(const struct table *table, FILE *out);
void table_print(const struct table *table);
void table_end(struct table *table);

#endif
