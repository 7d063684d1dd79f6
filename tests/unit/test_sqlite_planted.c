/* test_sqlite_planted.c - the SQLite module beside a user who can write the database and its directory, and adds
 * foreign objects and files. The module must not change files of its own user for that user, and must not be stopped
 * by that user. */
#include "sqlite_trust.h"

#include <sys/socket.h>

/* ---- a socket that is exchanged ------------------------------------------------------------------ */

static const char *planted; /* takes the place of a socket right after it was bound */

/* In place of the C library's: what a quick neighbour does between this call and the module's next one. */
__attribute__((visibility("default"))) int bind(int fd, __CONST_SOCKADDR_ARG address,
                                                socklen_t size)
{
    int (*real)(int, const struct sockaddr *, socklen_t) =
        (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "bind");
    const struct sockaddr *plain = *(const struct sockaddr *const *)&address;
    int rc = real(fd, plain, size);
    if (rc == 0 && planted != NULL)
        CU_ASSERT_EQUAL(rename(planted, plain->sa_data), 0);
    planted = NULL;
    return rc;
}

static const char *make_victim(const char *name)
{
    const char *victim = database(name);
    write_at(victim, 0, 'v', 4096);
    CU_ASSERT_EQUAL(chmod(victim, 0600), 0);
    return victim;
}

/* Makes a waiting client bind an inbox, in a database that everybody may use. */
static void wait_beside(const char *plant)
{
    struct client holder, client;
    struct call lock, other = call_make(MORTISE_OP_ACQUIRE, "a");
    OPEN_OK(&holder, "path", path, "mode", "0666", "shared", "yes");
    if (geteuid() == 0)
        CU_ASSERT_EQUAL(chown(path, NOBODY, NOBODY), 0);
    OPEN_OK(&client, "path", path, "mode", "0666", "shared", "yes");
    acquire(&holder, &lock, "a", 0);
    planted = plant;
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    CU_ASSERT_PTR_NULL(planted); /* else this would prove nothing */
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "cannot be notified of releases"));
    CU_ASSERT_EQUAL(release(&holder, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_OK);
    client_close(&client);
    client_close(&holder);
}

static void assert_untouched(const char *victim)
{
    struct stat about;
    CU_ASSERT_EQUAL_FATAL(stat(victim, &about), 0);
    CU_ASSERT_EQUAL(about.st_mode & 07777, 0600);
    CU_ASSERT_EQUAL(about.st_uid, geteuid());
}

static void test_symbolic_link(void)
{
    char link[PATHS_MAX];
    const char *victim = make_victim("victim");
    path = database("symbolic");
    CU_ASSERT_EQUAL(symlink(victim, joined(link, folder, "/link")), 0);
    wait_beside(link);
    assert_untouched(victim);
}

static void test_hard_link(void)
{
    char hard[PATHS_MAX];
    const char *victim = make_victim("hard-victim");
    path = database("hard");
    CU_ASSERT_EQUAL(link(victim, joined(hard, folder, "/hard")), 0);
    wait_beside(hard);
    assert_untouched(victim);
}

/* A socket of the same user that has another name as well: not the one that was bound. */
static void test_linked_socket(void)
{
    char other[PATHS_MAX], hard[PATHS_MAX];
    struct stat about;
    path = database("linked");
    joined(other, folder, "/other-socket");
    CU_ASSERT_EQUAL(mknod(other, S_IFSOCK | 0600, 0), 0);
    CU_ASSERT_EQUAL(link(other, joined(hard, folder, "/hard-socket")), 0);
    wait_beside(hard);
    CU_ASSERT_TRUE(stat(other, &about) == 0 && (about.st_mode & 0777) == 0600);
}

static void move_folder(const char *name, const char *file)
{
    char wake[PATHS_MAX], inside[PATHS_MAX];
    struct client client;
    struct stat about;
    path = database(name);
    joined(wake, path, "-wake");
    CU_ASSERT_EQUAL(mkdir(wake, 0700), 0);
    write_at(joined(inside, wake, file), 0, 'v', 4096);
    OPEN_OK(&client, "path", path, "mode", "0666", "shared", "yes");
    client_close(&client);
    CU_ASSERT_TRUE(stat(wake, &about) == 0 && (about.st_mode & 07777) == 0700);
}

/* A folder of the same user, moved to where the folder of sockets belongs, keeps its permissions. */
static void test_moved_folder(void)
{
    move_folder("moved-folder", "/private");
    move_folder("moved-cache", "/0123456789abcdef"); /* a name that a socket could have */
}

/* ---- files that do not belong there ----------------------------------------------------------------- */

static const char *const beside[] = {"-wal", "-shm", "-journal", ""};

/* SQLite would wait for ever for somebody to write into them. */
static void test_fifo(void)
{
    char file[PATHS_MAX];
    path = database("fifo");
    assert_accepted("no");
    for (int i = 0; i < 4; i++) {
        joined(file, path, beside[i]);
        unlink(file);
        CU_ASSERT_EQUAL(mkfifo(file, 0600), 0);
        assert_refused(file, "is not a file", i % 2 == 0 ? "no" : "yes");
        CU_ASSERT_EQUAL(unlink(file), 0);
    }
    assert_accepted("no");
}

static void test_second_name(void)
{
    char file[PATHS_MAX];
    const char *victim = make_victim("named-twice");
    path = database("names");
    assert_accepted("no");
    for (int i = 0; i < 4; i++) {
        joined(file, path, beside[i]);
        unlink(file);
        CU_ASSERT_EQUAL(link(victim, file), 0);
        assert_refused(file, "hard links", i % 2 == 0 ? "no" : "yes");
        CU_ASSERT_EQUAL(unlink(file), 0);
    }
    assert_accepted("no");
    assert_untouched(victim);
}

/* ---- whose they are ------------------------------------------------------------------------------- */

static void test_folder_of_others(void)
{
    char place[PATHS_MAX];
    joined(place, folder, "/open");
    path = database("open/locks");
    CU_ASSERT_EQUAL(mkdir(place, 0700), 0);
    assert_accepted("no");
    if (geteuid() == 0)
        CU_ASSERT_EQUAL(chown(place, 0, NOBODY), 0); /* not of a group that only this user is in */
    CU_ASSERT_EQUAL(chmod(place, 0770), 0);
    if (geteuid() == 0)
        assert_refused(place, "others may write the directory", "no");
    CU_ASSERT_EQUAL(chmod(place, 0777), 0);
    assert_refused(place, "its mode is 0777", "no");
    assert_accepted("yes");
    CU_ASSERT_EQUAL(chmod(place, 01777), 0); /* our file stays ours there */
    assert_accepted("no");
    CU_ASSERT_EQUAL(chmod(place, 0755), 0);
    assert_accepted("no");
    if (geteuid() == 0) {
        CU_ASSERT_EQUAL(chown(place, NOBODY, NOBODY), 0);
        assert_refused(place, "it belongs to uid 65534", "no");
        assert_accepted("yes");
    }
}

/* The database, or a part of it, is of another user. */
static void test_file_of_another(void)
{
    char file[PATHS_MAX];
    if (geteuid() != 0) {
        fputs(" (skipped: only root can make files of others) ", stderr);
        return;
    }
    path = database("another");
    assert_accepted("no");
    CU_ASSERT_EQUAL(chown(path, NOBODY, NOBODY), 0);
    assert_refused(path, "belongs to uid 65534", "no");
    assert_accepted("yes");
    CU_ASSERT_EQUAL(chown(path, 0, 0), 0);
    for (int i = 0; i < 3; i++) {
        write_at(joined(file, path, beside[i]), 0, 0, 0);
        CU_ASSERT_EQUAL(chown(file, NOBODY, NOBODY), 0);
        assert_refused(file, "belongs to uid 65534", "no");
        assert_accepted("yes");
        unlink(file);
    }
    CU_ASSERT_EQUAL(chown(joined(file, path, "-wake"), NOBODY, NOBODY), 0);
    assert_refused(file, "belongs to uid 65534", "no");
    CU_ASSERT_EQUAL(chown(file, 0, 0), 0);
    assert_accepted("no");
}

/* ---- a database that is changed ------------------------------------------------------------------ */

static void assert_changed(const char *what, const char *sql)
{
    struct client client;
    path = database(what);
    unlink(path); /* of the change before */
    OPEN_OK(&client, "path", path);
    client_close(&client);
    CU_ASSERT_EQUAL(outside(path, sql, NULL), 0);
    mortise_status status = OPEN(&client, "path", path);
    bool refused = status == MORTISE_CONFIG &&
                   strstr(client.error.message, "changed the tables") != NULL &&
                   strstr(client.error.message, what) != NULL;
    CU_ASSERT_TRUE(refused);
    if (!refused)
        fprintf(stderr, "\n    %s: %d \"%s\"\n", what, status, client.error.message);
    if (status == MORTISE_OK)
        client_close(&client);
}

static void test_changed_tables(void)
{
    assert_changed("trigger", "CREATE TRIGGER \"trigger\" AFTER INSERT ON mortise_lock BEGIN "
                              "DELETE FROM mortise_record; END");
    assert_changed("index", "CREATE INDEX \"index\" ON mortise_lock(hex(name))");
    assert_changed("view", "CREATE VIEW \"view\" AS SELECT 1");
    assert_changed("table", "CREATE TABLE \"table\"(a)");
    assert_changed("mortise_record", "DROP TABLE mortise_record");
    assert_changed("mortise_lock",
                   "DROP TABLE mortise_lock; CREATE VIEW mortise_lock AS SELECT 1 AS name");
    assert_changed("mortise_lock",
                   "ALTER TABLE mortise_lock ADD COLUMN x CHECK (length(name) < 9)");
}

/* SQLite reads the table of its statistics before anybody can judge it. */
static void assert_statistics_refused(const char *table, const char *expression)
{
    static char sql[32768];
    int n =
        snprintf(sql, sizeof(sql),
                 "CREATE TABLE plant(tbl, idx); INSERT INTO plant VALUES ('mortise_lock', NULL);"
                 "PRAGMA writable_schema = ON; UPDATE sqlite_master SET name = '%s', "
                 "tbl_name = '%s', sql = 'CREATE TABLE %s(tbl, idx, stat AS (%s))' "
                 "WHERE name = 'plant'",
                 table, table, table, expression);
    CU_ASSERT_FATAL(n > 0 && (size_t)n < sizeof(sql));
    assert_changed(table, sql);
}

static void test_statistics(void)
{
    static char expression[16384];
    size_t length = 0;
    assert_statistics_refused("sqlite_stat1", "1");
    assert_statistics_refused("sqlite_stat4", "1");
    assert_statistics_refused("sqlite_stat1", "instr(tbl, tbl)");
    for (int i = 0; i < 200; i++)
        length += (size_t)snprintf(expression + length, sizeof(expression) - length,
                                   "%sinstr(hex(zeroblob(500000)),hex(zeroblob(250000))||%d)",
                                   i == 0 ? "" : "+", i);
    assert_statistics_refused("sqlite_stat1", expression);
}

/* What SQLite adds by itself, and comments and white space in other places, are no change. */
static void test_harmless_changes(void)
{
    struct client client;
    struct call lock;
    path = database("harmless");
    CU_ASSERT_EQUAL(
        outside(
            path,
            "CREATE TABLE mortise_meta(key TEXT NOT NULL PRIMARY KEY, value) /* none */ WITHOUT "
            "ROWID; INSERT INTO mortise_meta VALUES ('layout', '1'), ('boot_id', 'another')",
            NULL),
        0);
    CU_ASSERT_EQUAL(outside(path, module->schema(), NULL), 0);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    client_close(&client);
    CU_ASSERT_EQUAL(outside(path, "ANALYZE", NULL), 0);
    OPEN_OK(&client, "path", path);
    client_close(&client);
}

/* The driver looks at the tables with the first request, and not again until the clock goes on. */
static void open_and_look(struct client *client)
{
    struct call lock;
    OPEN_OK(client, "path", path);
    clock_stop();
    CU_ASSERT_EQUAL(acquire(client, &lock, "first", 0), MORTISE_OK);
}

/* What comes while the database is in use does not run. */
static void test_late_trigger(void)
{
    struct client client;
    struct call lock;
    struct call record = call_make(MORTISE_OP_READ, "r");
    char value[MORTISE_RECORD_MAX];
    path = database("late");
    open_and_look(&client);
    CU_ASSERT_EQUAL(outside(path,
                            "CREATE TRIGGER t BEFORE INSERT ON mortise_lock BEGIN "
                            "INSERT INTO mortise_record VALUES (CAST('r' AS BLOB), 1, x'00'); END",
                            NULL),
                    0);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    record.op.buffer = value;
    record.op.buffer_size = sizeof(value);
    CU_ASSERT_EQUAL(run(&client, &record), MORTISE_OK);
    CU_ASSERT_EQUAL(record.op.record_version, 0);
    clock_go_on();
    client_close(&client);
}

/* Nor does a constraint that calls a function, and nobody waits for it. */
static void test_late_check(void)
{
    struct client client;
    struct call lock;
    path = database("late-check");
    open_and_look(&client);
    CU_ASSERT_EQUAL(
        outside(path,
                "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, "
                "'note BLOB', 'note BLOB CHECK (instr(hex(zeroblob(500)), hex(name)) < 9999)') "
                "WHERE name = 'mortise_lock'; PRAGMA schema_version = 999",
                NULL),
        0);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_BACKEND);
    clock_go_on();
    clock_shift_ns += 2000 * MS; /* it looks again what is in the file */
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(lock.error.message, "somebody has changed the tables"));
    CU_ASSERT_PTR_NOT_NULL(strstr(lock.error.message, "mortise_lock"));
    client_close(&client);
}

/* One that calls none is evaluated until the driver looks at the tables again. */
static void test_late_simple_check(void)
{
    struct client client;
    struct call lock;
    path = database("late-simple");
    open_and_look(&client);
    CU_ASSERT_EQUAL(
        outside(path,
                "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, "
                "'note BLOB', 'note BLOB CHECK (1 < 2)') WHERE name = 'mortise_lock'; "
                "PRAGMA schema_version = 999",
                NULL),
        0);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    clock_go_on();
    clock_shift_ns += 2000 * MS;
    CU_ASSERT_EQUAL(acquire(&client, &lock, "b", 0), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(lock.error.message, "somebody has changed the tables"));
    client_close(&client);
}

/* VACUUM counts as a change, and changes nothing. */
static void test_vacuum(void)
{
    struct client client;
    struct call lock;
    path = database("vacuum");
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(outside(path, "VACUUM", NULL), 0);
    clock_shift_ns += 2000 * MS;
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    client_close(&client);
}

static void a_second_later(void)
{
    clock_shift_ns += 1000 * MS;
}

/* A statement that goes on and on is ended: the clock makes a second of each look at it. */
static void test_endless_statement(void)
{
    struct client client;
    struct call lock, list = call_make(MORTISE_OP_LIST, "");
    path = database("endless");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    CU_ASSERT_EQUAL(
        outside(path,
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 50000) "
                "INSERT INTO mortise_lock SELECT CAST(i AS BLOB), 1, NULL, NULL, 0, 0, NULL, NULL "
                "FROM n",
                NULL),
        0);
    CU_ASSERT_EQUAL(run(&client, &list), MORTISE_OK);
    CU_ASSERT_EQUAL(client.emitted, 1);
    on_now = a_second_later;
    CU_ASSERT_EQUAL(run(&client, &list), MORTISE_UNREACHABLE);
    on_now = NULL;
    CU_ASSERT_PTR_NOT_NULL(strstr(list.error.message, "it took too long"));
    CU_ASSERT_EQUAL(run(&client, &list), MORTISE_OK);
    client_close(&client);
}

/* A row as long as memory is not read into it. */
static void test_huge_row(void)
{
    struct client client;
    struct call lock;
    path = database("huge");
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(outside(path, "UPDATE mortise_lock SET note = zeroblob(70000)", NULL), 0);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_BACKEND);
    CU_ASSERT_PTR_NOT_NULL(strstr(lock.error.message, "a row is too long"));
    client_close(&client);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a symbolic link in place of a socket", test_symbolic_link},
        {"a hard link in place of a socket", test_hard_link},
        {"another socket in place of a socket", test_linked_socket},
        {"a folder in place of the folder of sockets", test_moved_folder},
        {"a FIFO in place of a file", test_fifo},
        {"a file with a second name", test_second_name},
        {"a folder that others may write", test_folder_of_others},
        {"a file of another user", test_file_of_another},
        {"changed tables", test_changed_tables},
        {"statistics that are a program", test_statistics},
        {"harmless changes", test_harmless_changes},
        {"a trigger that comes late", test_late_trigger},
        {"a constraint that comes late", test_late_check},
        {"a simple constraint that comes late", test_late_simple_check},
        {"VACUUM while in use", test_vacuum},
        {"a statement without end", test_endless_statement},
        {"a row without end", test_huge_row},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite planted", tests);
}
