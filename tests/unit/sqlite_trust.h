/* sqlite_trust.h - what the tests of other users' files and directories share: a database that the SQLite module
 * refuses, with the wrong file and the reason, and one that it accepts. */
#ifndef MORTISE_TESTS_SQLITE_TRUST_H
#define MORTISE_TESTS_SQLITE_TRUST_H

#include "sqlite_host.h"

#define NOBODY 65534

static const char *path;

static inline void assert_refused(const char *file, const char *words, const char *shared)
{
    struct client client;
    mortise_status status = OPEN(&client, "path", path, "shared", shared);
    bool refused = status == MORTISE_CONFIG && strstr(client.error.message, file) != NULL &&
                   strstr(client.error.message, words) != NULL;
    CU_ASSERT_TRUE(refused);
    if (!refused)
        fprintf(stderr, "\n    %s: %d \"%s\"\n", file, status, client.error.message);
    if (status == MORTISE_OK)
        client_close(&client);
}

static inline void assert_accepted(const char *shared)
{
    struct client client;
    OPEN_OK(&client, "path", path, "shared", shared);
    client_close(&client);
}

static inline bool is_root(void)
{
    if (geteuid() == 0)
        return true;
    fputs(" (skipped: only root can make files of others) ", stderr);
    return false;
}

#endif
