/* test_sqlite_boot.c - the SQLite module and the boot id in its rows: which clients conclude that the host was
 * restarted, and which must not. A container shows its processes another boot id than its host. */
#include "sqlite_talk.h"

#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static void hold_until_told(void *argument)
{
    struct talk *talk = argument;
    struct client client;
    struct call lock;
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    say(talk->ready);
    CU_ASSERT_TRUE(hear(talk->go));
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK); /* nobody took it away */
    client_close(&client);
}

static void assert_refused(void)
{
    struct client client;
    mortise_status status = OPEN(&client, "path", path, "busy_timeout", "100ms");
    CU_ASSERT_EQUAL(status, MORTISE_CONFIG);
    if (status == MORTISE_OK)
        client_close(&client);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.error.message, "another boot of this host"));
    CU_ASSERT_PTR_NOT_NULL(strstr(client.error.message, path));
}

static void pretend_restart(void)
{
    CU_ASSERT_EQUAL(
        outside(path, "UPDATE mortise_meta SET value = 'another' WHERE key = 'boot_id'", NULL), 0);
}

static void test_in_use(void)
{
    struct talk talk = talk_open();
    struct client client;
    path = database("in-use");
    pid_t holder = child_start(hold_until_told, &talk);
    CU_ASSERT_TRUE_FATAL(hear(talk.ready));
    pretend_restart();
    assert_refused();
    assert_refused(); /* the first one has changed nothing */
    say(talk.go);
    CU_ASSERT_EQUAL(child_end(holder), 0);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_FALSE(inspect(&client, "a").held);
    client_close(&client);
    talk_close(&talk);
}

/* ---- a container ----------------------------------------------------------------------------------- */

static bool enter_container(void)
{
    char file[PATHS_MAX];
    int fd = open(joined(file, folder, "/boot-id"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    static const char id[] = "01234567-89ab-cdef-0123-456789abcdef\n";
    if (fd < 0 || write(fd, id, sizeof(id) - 1) != sizeof(id) - 1)
        abort();
    close(fd);
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount(file, BOOT_ID, NULL, MS_BIND, NULL) == 0;
}

/* First while the host has the file open, then alone, and then the host comes back. */
static void in_container(void *argument)
{
    struct talk *talk = argument;
    struct client client;
    CU_ASSERT_TRUE_FATAL(enter_container());
    assert_refused();
    say(talk->ready);
    CU_ASSERT_TRUE(hear(talk->go));
    OPEN_OK(&client, "path", path);
    CU_ASSERT_FALSE(inspect(&client, "a").held);
    say(talk->ready);
    CU_ASSERT_TRUE(hear(talk->go));
    client_close(&client);
}

static void probe(void *argument)
{
    (void)argument;
    _exit(enter_container() ? 0 : 77);
}

static void test_container(void)
{
    struct talk host = talk_open(), guest = talk_open();
    if (child_end(child_start(probe, NULL)) != 0) {
        fputs(" (skipped: no mount namespace can be made here) ", stderr);
        return;
    }
    path = database("container");
    pid_t holder = child_start(hold_until_told, &host);
    CU_ASSERT_TRUE_FATAL(hear(host.ready));
    pid_t container = child_start(in_container, &guest);
    CU_ASSERT_TRUE_FATAL(hear(guest.ready));
    say(host.go);
    CU_ASSERT_EQUAL(child_end(holder), 0);
    say(guest.go);
    CU_ASSERT_TRUE_FATAL(hear(guest.ready));
    assert_refused();
    say(guest.go);
    CU_ASSERT_EQUAL(child_end(container), 0);
    talk_close(&host);
    talk_close(&guest);
}

/* ---- after a restart --------------------------------------------------------------------------------- */

struct phases {
    struct talk start, end;
};

static void start_after_restart(void *argument)
{
    struct phases *phases = argument;
    struct client client;
    struct call lock;
    char name[16];
    snprintf(name, sizeof(name), "n%d", (int)getpid());
    CU_ASSERT_TRUE(hear(phases->start.go));
    OPEN_OK(&client, "path", path, "busy_timeout", "60s");
    CU_ASSERT_EQUAL(acquire(&client, &lock, name, 0), MORTISE_OK);
    say(phases->start.ready);
    CU_ASSERT_TRUE(hear(phases->end.go));
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK); /* nobody has freed it later */
    client_close(&client);
}

/* Services that start together: the first frees the rows, and none is refused for the sake of the others. */
static void test_all_at_once(void)
{
    enum { N = 12 };
    struct phases phases = {talk_open(), talk_open()};
    struct client client;
    struct call lock;
    pid_t pids[N];
    path = database("at-once");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    client_close(&client);
    pretend_restart();
    for (int i = 0; i < N; i++)
        pids[i] = child_start(start_after_restart, &phases);
    for (int i = 0; i < N; i++)
        say(phases.start.go);
    for (int i = 0; i < N; i++)
        CU_ASSERT_TRUE(hear(phases.start.ready));
    OPEN_OK(&client, "path", path);
    CU_ASSERT_FALSE(inspect(&client, "a").held);
    client_close(&client);
    for (int i = 0; i < N; i++)
        say(phases.end.go);
    for (int i = 0; i < N; i++)
        CU_ASSERT_EQUAL(child_end(pids[i]), 0);
    talk_close(&phases.start);
    talk_close(&phases.end);
}

/* ---- busy for a moment --------------------------------------------------------------------------------- */

enum stage { BEFORE, OPENED, BUSY, FREE };

static struct {
    enum stage stage;
    int turn; /* the folder of inboxes, locked: nobody frees rows */
    void *other;
} moment;

static bool is_open_here(void)
{
    char link[64], name[PATHS_MAX];
    bool found = false;
    for (int fd = 0; fd < 256 && !found; fd++) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, name, sizeof(name) - 1);
        name[n > 0 ? n : 0] = '\0';
        found = strcmp(name, path) == 0;
    }
    return found;
}

/* The other program makes the file busy and lets the next one have its turn. */
static void keep_file_and_pass_turn(void)
{
    CU_ASSERT_EQUAL(
        outside(path, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE", &moment.other), 0);
    CU_ASSERT_EQUAL(flock(moment.turn, LOCK_UN), 0);
    moment.stage = BUSY;
}

/* The driver has seen that the rows are of another boot, has closed the file and waits for its turn. When that comes, the
 * file is busy, as it is while another process recovers the log; and no more at the driver's next look at the time. */
static void be_busy_for_a_moment(void)
{
    bool open = is_open_here();
    if (moment.stage == BEFORE && open) {
        moment.stage = OPENED;
    } else if (moment.stage == OPENED && !open) {
        keep_file_and_pass_turn();
    } else if (moment.stage == BUSY) {
        outside_close(moment.other);
        moment.stage = FREE;
    }
}

/* A file that is busy just then is no reason to believe that somebody of another boot uses it. */
static void test_busy_in_turn(void)
{
    char wake[PATHS_MAX];
    struct client client;
    struct call lock;
    path = database("busy-in-turn");
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    client_close(&client);
    pretend_restart();
    moment.stage = BEFORE;
    moment.turn = open(joined(wake, path, "-wake"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(flock(moment.turn, LOCK_EX | LOCK_NB), 0);
    on_now = be_busy_for_a_moment;
    OPEN_OK(&client, "path", path, "busy_timeout", "60s");
    on_now = NULL;
    CU_ASSERT_EQUAL(moment.stage, FREE); /* else this would prove nothing */
    CU_ASSERT_FALSE(inspect(&client, "a").held);
    client_close(&client);
    close(moment.turn);
}

/* ---- another was faster, and stays ------------------------------------------------------------------------ */

/* What the one that was faster has done: the rows are of this boot. */
static void believe_again(void **keep)
{
    char id[40] = "", sql[160];
    FILE *file = fopen(BOOT_ID, "re");
    CU_ASSERT_FATAL(file != NULL && fscanf(file, "%36s", id) == 1);
    fclose(file);
    snprintf(sql, sizeof(sql), "UPDATE mortise_meta SET value = '%s' WHERE key = 'boot_id'", id);
    CU_ASSERT_EQUAL(outside(path, sql, keep), 0);
}

static bool is_turned_away(void)
{
    bool open = is_open_here();
    if (moment.stage == BEFORE && open)
        moment.stage = OPENED;
    return moment.stage == OPENED && !open;
}

/* The other process has freed the rows. The file is busy at the driver's turn, and then the other has it open like any
 * client, for good. */
static void be_busy_and_stay(void)
{
    if (is_turned_away()) {
        believe_again(NULL);
        keep_file_and_pass_turn();
    } else if (moment.stage == BUSY) {
        outside_close(moment.other);
        moment.other = NULL;
        CU_ASSERT_EQUAL(outside(path, "SELECT * FROM mortise_meta", &moment.other), 0);
        moment.stage = FREE;
    }
}

/* It never leaves the folder, because it was stopped there, say. */
static void keep_the_turn(void)
{
    if (is_turned_away()) {
        believe_again(&moment.other);
        moment.stage = FREE;
    }
}

static void open_late(const char *name, void (*meanwhile)(void), const char *busy_timeout)
{
    char wake[PATHS_MAX];
    struct client client;
    struct call lock;
    path = database(name);
    OPEN_OK(&client, "path", path);
    acquire(&client, &lock, "a", 0);
    client_close(&client);
    pretend_restart();
    moment.stage = BEFORE;
    moment.other = NULL;
    moment.turn = open(joined(wake, path, "-wake"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(flock(moment.turn, LOCK_EX | LOCK_NB), 0);
    on_now = meanwhile;
    mortise_status status = OPEN(&client, "path", path, "busy_timeout", busy_timeout);
    on_now = NULL;
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_EQUAL(moment.stage, FREE); /* else this would prove nothing */
    if (status == MORTISE_OK) {
        CU_ASSERT_TRUE(inspect(&client, "a").held); /* nothing was freed a second time */
        client_close(&client);
    } else {
        fprintf(stderr, "open: %s\n", client.error.message);
    }
    outside_close(moment.other);
    close(moment.turn);
}

static void test_faster_and_stays(void)
{
    open_late("stays", be_busy_and_stay, "10s");
}

static void test_no_turn(void)
{
    open_late("no-turn", keep_the_turn, "500ms");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"another boot id while the file is in use", test_in_use},
        {"a container with a boot id of its own", test_container},
        {"many programs start after a restart", test_all_at_once},
        {"the file is busy for a moment", test_busy_in_turn},
        {"another has freed the rows and stays", test_faster_and_stays},
        {"another has freed the rows and keeps the turn", test_no_turn},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite boot", tests);
}
