/* test_sqlite_planted.c - the SQLite module beside a user who may write the database and its folder, and plants what
 * does not belong there. The module must neither change files of its own user for him nor let him stop it. */
#include "sqlite_host.h"

#include <sys/socket.h>

#define NOBODY 65534

static const char *path;

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
    OPEN_OK(&holder, "path", path, "mode", "0666");
    if (geteuid() == 0)
        CU_ASSERT_EQUAL(chown(path, NOBODY, NOBODY), 0);
    OPEN_OK(&client, "path", path, "mode", "0666");
    acquire(&holder, &lock, "a", 0);
    planted = plant;
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    CU_ASSERT_PTR_NULL(planted); /* else this would prove nothing */
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "cannot be told of releases"));
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

/* A folder of the same user, moved to where the folder of sockets belongs, keeps its permissions. */
static void test_moved_folder(void)
{
    char wake[PATHS_MAX], inside[PATHS_MAX];
    struct client client;
    struct stat about;
    path = database("moved-folder");
    joined(wake, path, "-wake");
    CU_ASSERT_EQUAL(mkdir(wake, 0700), 0);
    write_at(joined(inside, wake, "/private"), 0, 'v', 4096);
    OPEN_OK(&client, "path", path, "mode", "0666");
    client_close(&client);
    CU_ASSERT_TRUE(stat(wake, &about) == 0 && (about.st_mode & 07777) == 0700);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a symbolic link in place of a socket", test_symbolic_link},
        {"a hard link in place of a socket", test_hard_link},
        {"another socket in place of a socket", test_linked_socket},
        {"a folder in place of the folder of sockets", test_moved_folder},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite planted", tests);
}
