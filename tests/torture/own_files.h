/* own_files.h - the files of a fighter, and the end of its descriptors. What it tells the checker is written into mapped
 * memory and needs no descriptor. The counters have some: who uses them is inside, so none is used under a number that has
 * become another file's. */
#ifndef MORTISE_TESTS_TORTURE_OWN_FILES_H
#define MORTISE_TESTS_TORTURE_OWN_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* Makes the file of what is told, in the folder. */
bool told_open(const char *folder, int pid);
/* A whole line; it is in the file even if the process is killed then. Any thread. */
bool told_write(const char *line, size_t length);

/* Around each use of a descriptor of the fighter's. False: they are closed; then do not leave. Any thread. */
bool own_files_enter(void);
void own_files_leave(void);

/* Closes the connections to a witness, and the descriptor of the memory that it reads. */
void close_of_witness(void);
/* Closes all descriptors from 3 up, whoever uses them. */
void close_all(void);
bool all_closed(void);

#endif
