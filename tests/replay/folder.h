/* folder.h - the folder of a run: its configuration, its history, and the data of its servers. */
#ifndef MORTISE_TESTS_REPLAY_FOLDER_H
#define MORTISE_TESTS_REPLAY_FOLDER_H

#include <stddef.h>

/* Writes the path, and returns the lock for folder_remove(). Children inherit it. */
int folder_make(char *path, size_t size);
void folder_remove(const char *path, int lock);
/* Removes the folders of programs that were killed. */
void folder_remove_left(void);

#endif
