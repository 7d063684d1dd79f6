/* test_sqlite_place.c - where the SQLite module keeps its file: what it refuses to open, and why; what it creates by
 * default, with which permissions. Runs as "nobody" what root would be permitted to do anyway. */
#include "sqlite_host.h"

#include <grp.h>

#define NOBODY 65534

static const char *path;

static void refused(mortise_status status, const char *words, const char *key, const char *text)
{
    struct client client;
    mortise_status got =
        key == NULL ? OPEN(&client, "path", path) : OPEN(&client, "path", path, key, text);
    CU_ASSERT_EQUAL(got, status);
    CU_ASSERT_EQUAL(client.error.status, status);
    bool said = strstr(client.error.message, words) != NULL;
    CU_ASSERT_TRUE(said);
    if (got != status || !said)
        fprintf(stderr, "\n    %d \"%s\", not \"%s\"\n", got, client.error.message, words);
    if (got == MORTISE_OK)
        client_close(&client);
}

static void test_no_database(void)
{
    path = database("junk");
    write_at(path, 0, 'x', 8192);
    refused(MORTISE_BACKEND, "junk.db: this is no SQLite database", NULL, NULL);
    path = database("foreign");
    CU_ASSERT_EQUAL(outside(path, "CREATE TABLE users(name)", NULL), 0);
    refused(MORTISE_CONFIG, "belongs to another program", NULL, NULL);
    path = database("newer");
    struct client client;
    OPEN_OK(&client, "path", path);
    client_close(&client);
    CU_ASSERT_EQUAL(outside(path, "UPDATE mortise_meta SET value = 7 WHERE key = 'layout'", NULL),
                    0);
    refused(MORTISE_CONFIG, "its layout is \"7\", this driver knows 1", NULL, NULL);
}

static void test_bad_settings(void)
{
    path = "relative.db";
    refused(MORTISE_CONFIG, "expected the absolute path", NULL, NULL);
    path = "/";
    refused(MORTISE_CONFIG, "expected the absolute path", NULL, NULL);
    path = "/no/such/folder/locks.db";
    refused(MORTISE_CONFIG, "cannot use the folder /no/such/folder", NULL, NULL);
    path = folder;
    refused(MORTISE_CONFIG, "is not a file", NULL, NULL);
    path = database("mode");
    refused(MORTISE_CONFIG, "mode is \"0800\"", "mode", "0800");
    refused(MORTISE_CONFIG, "expected permissions", "mode", "0400");
    refused(MORTISE_CONFIG, "expected permissions", "mode", "0777");
    CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
}

/* ---- permissions ------------------------------------------------------------------------------- */

static unsigned mode_of(const char *file, const char *suffix)
{
    char text[PATHS_MAX];
    struct stat about = {.st_mode = 0};
    stat(joined(text, file, suffix), &about);
    return about.st_mode & 0777;
}

static void test_modes(void)
{
    struct client holder, client;
    struct call lock, other = call_make(MORTISE_OP_ACQUIRE, "a");
    char wake[PATHS_MAX], socket[PATHS_MAX];
    path = database("private");
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(mode_of(path, ""), 0600);
    CU_ASSERT_EQUAL(mode_of(path, "-wal"), 0600);
    CU_ASSERT_EQUAL(mode_of(path, "-wake"), 0700);
    client_close(&client);
    path = database("group");
    mode_t before = umask(077);
    OPEN_OK(&holder, "path", path, "mode", "0660", "synchronous", "full");
    OPEN_OK(&client, "path", path);
    acquire(&holder, &lock, "a", 0);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    umask(before);
    CU_ASSERT_EQUAL(mode_of(path, ""), 0660);
    CU_ASSERT_EQUAL(mode_of(path, "-wal"), 0660);
    CU_ASSERT_EQUAL(mode_of(path, "-wake"), 0770);
    joined(wake, path, "-wake");
    DIR *directory = opendir(wake);
    const struct dirent *entry;
    CU_ASSERT_PTR_NOT_NULL_FATAL(directory);
    while ((entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            CU_ASSERT_EQUAL(mode_of(wake, joined(socket, "/", entry->d_name)), 0660);
    closedir(directory);
    client_close(&client);
    client_close(&holder);
}

static void as_nobody(void *argument)
{
    struct client client;
    struct stat about;
    char text[PATHS_MAX];
    (void)argument;
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        abort();
    joined(text, folder, "/home");
    setenv("XDG_STATE_HOME", text, 1);
    CU_ASSERT_EQUAL(OPEN(&client, "busy_timeout", "1s"), MORTISE_OK);
    client_close(&client);
    path = database("home/mortise/locks");
    joined(text, folder, "/home/mortise");
    CU_ASSERT_TRUE(stat(text, &about) == 0 && (about.st_mode & 0777) == 0700);
    CU_ASSERT_EQUAL(mode_of(path, ""), 0600);
    chmod(text, 0770); /* somebody else could replace the file */
    CU_ASSERT_EQUAL(OPEN(&client, "busy_timeout", "1s"), MORTISE_CONFIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.error.message, "nobody else may write in it"));
    chmod(text, 0700);

    chmod(path, 0400);
    refused(MORTISE_CONFIG, "must be writable for uid", NULL, NULL);
    chmod(path, 0600);
    chmod(text, 0500);
    refused(MORTISE_CONFIG, "/home/mortise must be writable for uid", NULL, NULL);
    chmod(text, 0700);
    OPEN_OK(&client, "path", path);
    client_close(&client);
}

static void test_as_nobody(void)
{
    char home[PATHS_MAX];
    joined(home, folder, "/home");
    CU_ASSERT_EQUAL(mkdir(home, 0700), 0);
    chmod(folder, 0711);
    if (geteuid() == 0)
        CU_ASSERT_EQUAL(chown(home, NOBODY, NOBODY), 0);
    CU_ASSERT_EQUAL(child_end(child_start(as_nobody, NULL)), 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is no database of ours", test_no_database},
        {"bad settings", test_bad_settings},
        {"permissions of what is made", test_modes},
        {"a user who may not do everything", test_as_nobody},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite place", tests);
}
