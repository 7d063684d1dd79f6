/* sqlite_replaced.h - what the tests of a replaced database of the SQLite module share: a backup to put into its place, and whether
 * that, and nothing else, is in the file then. */
#ifndef MORTISE_TESTS_SQLITE_REPLACED_H
#define MORTISE_TESTS_SQLITE_REPLACED_H

#include "sqlite_host.h"

enum { MANY = 500 }; /* names; not all of them are copied out of the log */

static const char *path;
static struct call locks[MANY];

static inline void acquire_many(struct client *client, const char *prefix, int count)
{
    static char names[MANY][16];
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "%s%03d", prefix, i);
        locks[i] = call_make(MORTISE_OP_ACQUIRE, names[i]);
        locks[i].op.ttl_ms = 3600000;
        CU_ASSERT_EQUAL_FATAL(run(client, &locks[i]), MORTISE_OK);
    }
}

/* A file in which "b000" and so on are held. */
static inline void make_backup(char *backup, int count)
{
    struct client client;
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "b", count);
    client_close(&client);
    CU_ASSERT_EQUAL_FATAL(rename(path, joined(backup, path, "-backup")), 0);
}

static inline unsigned list(struct client *client, const char *prefix)
{
    struct call call = call_make(MORTISE_OP_LIST, prefix);
    client->emitted = 0;
    CU_ASSERT_EQUAL(run(client, &call), MORTISE_OK);
    return client->emitted;
}

/* Those of the backup, and no others. */
static inline void has_backup(struct client *client, int count)
{
    char name[16];
    CU_ASSERT_EQUAL(list(client, "b"), count);
    CU_ASSERT_EQUAL(list(client, ""), count);
    for (int i = 0; i < count; i += 50) {
        struct call lock;
        snprintf(name, sizeof name, "b%03d", i);
        CU_ASSERT_EQUAL(acquire(client, &lock, name, MORTISE_OP_TRY), MORTISE_BUSY);
    }
}

static inline ino_t inode_of(const char *suffix)
{
    char file[PATHS_MAX];
    struct stat about = {.st_ino = 0};
    stat(joined(file, path, suffix), &about);
    return about.st_ino;
}

#endif
