/* note.h - reads the note that every op carries: "host\npid\nprogram". For drivers that store it and tell
 * of the holder. SPDX-License-Identifier: MIT */
#ifndef MORTISE_ROWLEASE_NOTE_H
#define MORTISE_ROWLEASE_NOTE_H

#include <mortise/driver.h>

/* Fills host, pid and program of *info; what is missing or makes no sense is left empty or 0. The note
 * comes from the database: any bytes, cut to fit. */
void note_read(const char *note, size_t note_len, mortise_info *info);

#endif
