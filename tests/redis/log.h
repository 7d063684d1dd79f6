/* log.h - what the clients of this process log, which goes to its stderr. */
#ifndef MORTISE_TESTS_REDIS_LOG_H
#define MORTISE_TESTS_REDIS_LOG_H

#include <stdbool.h>

/* From now on into a file in the folder. False: the check has failed. */
bool log_begin(const char *folder);
/* Where it went before. The file stays. */
void log_end(void);
/* How often these words are in the file. */
int log_count(const char *words);

#endif
