/* test_sqlite_trust.c - which users the SQLite module trusts: the owners and permissions of the directories above the
 * database, of the files that SQLite keeps beside it, and of the directory of sockets. */
#include "acl.h"
#include "sqlite_trust.h"

#define STRANGER 65533

/* ---- folders ------------------------------------------------------------------------------------- */

/* A group that has the name of the owner and no other member adds nobody to those who may write. */
static void test_private_group(void)
{
    char place[PATHS_MAX];
    joined(place, folder, "/private");
    path = database("private/locks");
    CU_ASSERT_EQUAL(mkdir(place, 0700), 0);
    if (!is_root())
        return;
    CU_ASSERT_EQUAL(chown(place, 0, 0), 0); /* root:root */
    CU_ASSERT_EQUAL(chmod(place, 0775), 0);
    assert_accepted("no");
    CU_ASSERT_EQUAL(chmod(place, 02777), 0);
    assert_refused(place, "its mode is 2777", "no");
    CU_ASSERT_EQUAL(chmod(place, 0775), 0);
    CU_ASSERT_EQUAL(chown(place, 0, 1), 0); /* another user's private group */
    assert_refused(place, "others may write the directory", "no");
    CU_ASSERT_EQUAL(chown(place, 0, 100), 0); /* "users", or a group without a name */
    assert_refused(place, "others may write the directory", "no");
    assert_accepted("yes");
}

/* The mode of a folder with an ACL does not tell who may write it. */
static void test_acl(void)
{
    char place[PATHS_MAX];
    joined(place, folder, "/acl");
    path = database("acl/locks");
    CU_ASSERT_EQUAL(mkdir(place, 0700), 0);
    if (!is_root())
        return;
    CU_ASSERT_EQUAL(chown(place, 0, 0), 0); /* root:root, a private group */
    CU_ASSERT_EQUAL(chmod(place, 0770), 0);
    assert_accepted("no");
    if (!acl_let_in(place, STRANGER)) {
        fputs(" (skipped: the file system of TMPDIR has no ACLs) ", stderr);
        return;
    }
    assert_refused(place, "has an ACL", "no");
    assert_accepted("yes");
    CU_ASSERT_EQUAL(chmod(place, 0750), 0); /* the list is there, and permits less */
    assert_accepted("no");
    CU_ASSERT_EQUAL(chmod(place, 01770), 0); /* ours stays ours there */
    assert_accepted("no");
}

static void test_folder_above(void)
{
    char outer[PATHS_MAX], inner[PATHS_MAX];
    joined(outer, folder, "/outer");
    joined(inner, outer, "/inner");
    path = database("outer/inner/locks");
    CU_ASSERT_EQUAL(mkdir(outer, 0700), 0);
    CU_ASSERT_EQUAL(mkdir(inner, 0700), 0);
    assert_accepted("no");
    CU_ASSERT_EQUAL(chmod(outer, 0777), 0);
    assert_refused(outer, "others may write the directory", "no");
    assert_accepted("yes");
    CU_ASSERT_EQUAL(chmod(outer, 01777), 0); /* ours stays ours there, as in /tmp */
    assert_accepted("no");
    CU_ASSERT_EQUAL(chmod(outer, 0755), 0);
    assert_accepted("no");
    if (is_root()) {
        CU_ASSERT_EQUAL(chown(outer, NOBODY, NOBODY), 0);
        assert_refused(outer, "it belongs to uid 65534", "no");
        assert_accepted("yes");
    }
}

/* ---- what root would give away ------------------------------------------------------------------- */

/* Somebody moves a file of root to where his database has its log: it must stay root's. */
static void test_moved_file(void)
{
    static const char *const beside[] = {"-wal", "-shm", "-journal"};
    char file[PATHS_MAX];
    struct stat about;
    if (!is_root())
        return;
    path = database("gift");
    assert_accepted("no");
    CU_ASSERT_EQUAL(chown(path, NOBODY, NOBODY), 0);
    for (int i = 0; i < 3; i++) {
        joined(file, path, beside[i]);
        unlink(file);
        write_at(file, 0, 's', 4096);
        assert_refused(file, "to whom SQLite would give it", "yes");
        CU_ASSERT_EQUAL(chmod(file, 0644), 0);
        assert_refused(file, "to whom SQLite would give it", "yes");
        CU_ASSERT_EQUAL(chmod(file, 0600), 0);
        CU_ASSERT_TRUE(stat(file, &about) == 0 && about.st_uid == 0);
        CU_ASSERT_EQUAL(chown(file, STRANGER, NOBODY), 0);
        assert_refused(file, "to whom SQLite would give it", "yes");
        CU_ASSERT_TRUE(stat(file, &about) == 0 && about.st_uid == STRANGER);
        unlink(file);
    }
    assert_accepted("yes");
}

/* Users who share a database make logs for each other, with the permissions that it has. */
static void test_log_of_another(void)
{
    char file[PATHS_MAX];
    if (!is_root())
        return;
    path = database("logs");
    assert_accepted("no");
    CU_ASSERT_EQUAL(chown(path, NOBODY, NOBODY), 0);
    CU_ASSERT_EQUAL(chmod(path, 0666), 0);
    write_at(joined(file, path, "-wal"), 0, 0, 0);
    CU_ASSERT_EQUAL(chown(file, STRANGER, STRANGER), 0);
    CU_ASSERT_EQUAL(chmod(file, 0666), 0);
    assert_accepted("yes");
    CU_ASSERT_EQUAL(chmod(path, 0660), 0);
    write_at(file, 0, 0, 0);
    CU_ASSERT_EQUAL(chown(file, STRANGER, NOBODY), 0);
    CU_ASSERT_EQUAL(chmod(file, 0660), 0);
    assert_accepted("yes");
    write_at(file, 0, 0, 0);
    CU_ASSERT_EQUAL(chown(file, STRANGER, STRANGER), 0);
    CU_ASSERT_EQUAL(chmod(file, 0660), 0); /* of a group that the database's owner may not be in */
    assert_refused(file, "to whom SQLite would give it", "yes");
}

/* ---- the folder of sockets ----------------------------------------------------------------------- */

/* A folder of another user, put there while the database is open, gets no socket. */
static void test_exchanged_sockets(void)
{
    struct client holder, client;
    struct call lock, other = call_make(MORTISE_OP_ACQUIRE, "a");
    char wake[PATHS_MAX];
    if (!is_root())
        return;
    path = database("sockets");
    OPEN_OK(&holder, "path", path);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&holder, &lock, "a", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(rmdir(joined(wake, path, "-wake")), 0);
    CU_ASSERT_EQUAL(mkdir(wake, 0700), 0);
    CU_ASSERT_EQUAL(chown(wake, NOBODY, NOBODY), 0);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "cannot be notified of releases"));
    CU_ASSERT_EQUAL(entries_in(path, "-wake"), 0);
    CU_ASSERT_EQUAL(release(&holder, &lock), MORTISE_OK);
    client_close(&client);
    client_close(&holder);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a folder of a private group", test_private_group},
        {"a folder with an ACL", test_acl},
        {"a folder above that others may write", test_folder_above},
        {"a file of root moved to the log", test_moved_file},
        {"a log that another user made", test_log_of_another},
        {"the folder of sockets exchanged in use", test_exchanged_sockets},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite trust", tests);
}
