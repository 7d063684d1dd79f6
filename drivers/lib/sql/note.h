/* note.h - reads the note that every op carries: "host\npid\nprogram". For drivers that store it and report the
 * holder. SPDX-License-Identifier: MIT */
#ifndef MORTISE_ROWLEASE_NOTE_H
#define MORTISE_ROWLEASE_NOTE_H

#include <mortise/driver.h>

/* Fills host, pid and program of *info. A part that is missing or makes no sense becomes empty or 0. The note comes
 * from the database, so it may be any bytes; long parts are cut to fit. */
void note_read(const char *note, size_t note_len, mortise_info *info);

#endif
