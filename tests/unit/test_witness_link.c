/* test_witness_link.c - a client and its witness: each cell of the table of connections in core/witness/link.h. */
#include "witness_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

static struct outcome other;

static void test_hello(void)
{
    struct stat about;
    char link[64], to[64] = "";
    start("crash_delay = 70ms\n");
    char *file = realpath(mortise_config_source(rig.handle), NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(in.head.pid, getpid());
    CU_ASSERT_EQUAL(in.head.version, MORTISE_WITNESS_VERSION);
    CU_ASSERT_EQUAL(in.head.crash_delay_ms, 70);
    CU_ASSERT_EQUAL(in.head.print, mortise_config_print(rig.handle));
    CU_ASSERT_STRING_EQUAL(in.text, file);
    free(file);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", pidfd);
    CU_ASSERT(readlink(link, to, sizeof(to) - 1) > 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(to, "pidfd"));
    CU_ASSERT_EQUAL(fstat(area, &about), 0);
    CU_ASSERT_EQUAL(head().magic, MORTISE_WITNESS_MAGIC);
    CU_ASSERT_EQUAL(head().version, MORTISE_WITNESS_VERSION);
    CU_ASSERT_EQUAL(head().slot_size, sizeof(mortise_witness_slot));
    finish();
}

static void test_nobody(void)
{
    snprintf(path, sizeof(path), "%s/none", rig_folder);
    snprintf(config, sizeof(config), "witness = %s\n", path);
    rig_open(&rig, config);
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_AWAY);
    CU_ASSERT_EQUAL(link_due_ns(the_link()), MORTISE_NEVER); /* no wake-ups for it */
    release(take(&rig, "a", NULL));
    CU_ASSERT_PTR_NULL(rig.client->locks.area.head); /* and no memory */
    rig_close(&rig);
}

/* The witness comes when claims are there already. */
static void test_comes_late(void)
{
    snprintf(path, sizeof(path), "%s/w", rig_folder);
    snprintf(config, sizeof(config), "ttl = 3s\nhandover_max = 0\nwitness = %s\n", path);
    rig_open(&rig, config);
    turn();
    mortise_lease *lease = take(&rig, "a", NULL);
    int hold = SCRIPT(.kinds = OP(ACQUIRE), .name = "b", .times = 1, .hold_reply = true);
    want(&rig, &got, "b", FOREVER);
    want(&rig, &other, "a", FOREVER);
    start_listening();
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_AWAY); /* not every time that the watchdog is awake */
    advance_ms(10000);
    turn();
    meet();
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 1);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_ASKED), 1);
    sim->let_go(hold);
    settle();
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), got.status == MORTISE_OK ? 2 : 1);
    release(lease);
    settle();
    release(other.lease);
    if (got.status == MORTISE_OK)
        release(got.lease);
    settle();
    finish();
}

/* One after the other: the witness ends, refuses, is of another version, talks nonsense. */
static void test_comes_back(void)
{
    start("");
    mortise_lease *lease = take(&rig, "a", NULL);
    shut(&peer);
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_AWAY);
    CU_ASSERT(the_link()->told);
    CU_ASSERT(link_due_ns(the_link()) <= now_ns() + 50 * MS);
    set_now(link_due_ns(the_link()));
    turn();
    meet();
    CU_ASSERT_EQUAL(the_link()->state, LINK_GREETED);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 1);
    say(MORTISE_WITNESS_REFUSE, "I have no time");
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_REFUSED);
    set_now(link_due_ns(the_link()));
    turn();
    meet();
    CU_ASSERT_EQUAL(write(peer, "nonsense", 8), 8);
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_AWAY);
    set_now(link_due_ns(the_link()));
    turn();
    meet();
    say(MORTISE_WITNESS_WELCOME, "");
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_WATCHED);
    CU_ASSERT_FALSE(the_link()->told);
    settle();
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST); /* minutes have passed */
    sim->lose_all();
    finish();
}

/* It does not answer: one line, and the connection stays. */
static void test_hangs(void)
{
    snprintf(path, sizeof(path), "%s/w", rig_folder);
    snprintf(config, sizeof(config), "witness = %s\n", path);
    start_listening();
    rig_open(&rig, config);
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_GREETED);
    set_now(link_due_ns(the_link()));
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_GREETED);
    CU_ASSERT_EQUAL(link_due_ns(the_link()), MORTISE_NEVER);
    meet();
    say(MORTISE_WITNESS_WELCOME, "");
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_WATCHED);
    finish();
}

/* The program closed our descriptors, and has others under their numbers. */
static void test_closed_by_the_program(void)
{
    start("");
    mortise_lease *lease = take(&rig, "a", NULL);
    int socket = the_link()->socket.fd, file = rig.client->locks.area.file.fd;
    int theirs[2];
    CU_ASSERT_EQUAL_FATAL(pipe(theirs), 0);
    CU_ASSERT_EQUAL(dup2(theirs[1], socket), socket);
    CU_ASSERT_EQUAL(dup2(theirs[1], file), file);
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_AWAY);
    set_now(link_due_ns(the_link()));
    turn(); /* without the area's descriptor nobody can be greeted */
    CU_ASSERT_EQUAL(the_link()->state, LINK_AWAY);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 1); /* the memory stays */
    release(lease);
    CU_ASSERT_EQUAL(IN_USE(), 0);
    rig_close(&rig);
    CU_ASSERT(fcntl(socket, F_GETFD) >= 0); /* still theirs */
    CU_ASSERT(fcntl(file, F_GETFD) >= 0);
    close(socket);
    close(file);
    close(theirs[0]);
    close(theirs[1]);
    stop_listening();
}

static void test_settings(void)
{
    mortise_error error = {.message = ""};
    CU_ASSERT_EQUAL(rig_try_open(&rig, true, "witness = sometimes\n", &error), MORTISE_CONFIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "[mortise] witness"));
    rig_open(&rig, "witness = off\n");
    CU_ASSERT_EQUAL(the_link()->state, LINK_OFF);
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_OFF);
    rig_close(&rig);
    CU_ASSERT_EQUAL(setenv("XDG_RUNTIME_DIR", rig_folder, 1), 0);
    if (geteuid() != 0) {
        CU_ASSERT_EQUAL(rig_try_open(&rig, true, "witness = required\n", &error),
                        MORTISE_UNREACHABLE);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "/mortise/witness.sock"));
    }
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

/* Root has a place of its own, which no variable decides. False: another user cannot load the modules here. */
static bool be_somebody(void)
{
    enum { SOMEBODY = 4711 };
    if (geteuid() == 0)
        CU_ASSERT_FATAL(chown(rig_folder, SOMEBODY, 0) == 0 && seteuid(SOMEBODY) == 0);
    return faccessat(AT_FDCWD, TEST_SIM_DIR "/sim.so", R_OK, AT_EACCESS) == 0;
}

static void be(uid_t self)
{
    if (geteuid() != self)
        CU_ASSERT(seteuid(self) == 0 && chown(rig_folder, self, 0) == 0);
}

static void refuse_long_path(void)
{
    static const char reason[] = "XDG_RUNTIME_DIR is too long for a socket in it";
    mortise_error error = {.message = ""};
    char text[200];
    CU_ASSERT_EQUAL(rig_try_open(&rig, true, "witness = required\n", &error), MORTISE_NOTSUP);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, reason));
    rig_open(&rig, "witness = auto\n");
    CU_ASSERT_EQUAL(the_link()->state, LINK_OFF);
    CU_ASSERT_EQUAL(mortise_witness_path(rig.handle, text, sizeof(text)), 0);
    CU_ASSERT_STRING_EQUAL(text, reason);
    CU_ASSERT_EQUAL(mortise_witness_configured(rig.handle, text, sizeof(text)), 0);
    rig_close(&rig);
}

static void test_long_path(void)
{
    uid_t self = geteuid();
    char folder[121];
    memset(folder, '/', sizeof(folder) - 1);
    folder[sizeof(folder) - 1] = '\0';
    CU_ASSERT_EQUAL(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    if (be_somebody())
        refuse_long_path();
    else
        fprintf(stderr, " (skipped: another user cannot load the modules) ");
    be(self);
    CU_ASSERT_EQUAL(unsetenv("XDG_RUNTIME_DIR"), 0);
}

/* Where a client looks for its witness, or why nowhere. */
static void test_path(void)
{
    char text[200], small[8];
    mortise_client *client;
    snprintf(path, sizeof(path), "%s/w", rig_folder);
    snprintf(config, sizeof(config), "witness = %s\n", path);
    rig_open(&rig, config);
    CU_ASSERT_EQUAL(mortise_witness_path(rig.handle, text, sizeof(text)), strlen(path));
    CU_ASSERT_STRING_EQUAL(text, path);
    CU_ASSERT_EQUAL(mortise_witness_path(rig.handle, small, sizeof(small)), strlen(path));
    CU_ASSERT_EQUAL(strlen(small), sizeof(small) - 1);
    CU_ASSERT_EQUAL(mortise_witness_path(rig.handle, NULL, 0), strlen(path));
    CU_ASSERT_EQUAL(mortise_witness_configured(rig.handle, text, sizeof(text)), strlen(path));
    CU_ASSERT_STRING_EQUAL(text, path);
    CU_ASSERT_EQUAL(mortise_open_for_dead(mortise_config_source(rig.handle), &client, NULL),
                    MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_witness_path(client, text, sizeof(text)), 0);
    CU_ASSERT_STRING_EQUAL(text, "opened without one");
    CU_ASSERT_EQUAL(mortise_witness_configured(client, text, sizeof(text)), 0);
    CU_ASSERT_STRING_EQUAL(text, "");
    mortise_close(client, NULL);
    rig_close(&rig);
    CU_ASSERT_EQUAL(mortise_witness_path(rig.handle, text, sizeof(text)), 0);
    CU_ASSERT_STRING_EQUAL(text, "");

    rig_open(&rig, "witness = off\n");
    CU_ASSERT_EQUAL(mortise_witness_path(rig.handle, text, sizeof(text)), 0);
    CU_ASSERT_STRING_EQUAL(text, "witness = off");
    rig_close(&rig);
}

/* What opening with witness = required waits for, and what it says if that does not come. */
static void test_required(void)
{
    char why[200] = "";
    const int64_t patience_ns = TEST_PATIENCE_MS * NS_PER_MS, soon_ns = 20 * NS_PER_MS;
    snprintf(path, sizeof(path), "%s/w", rig_folder);
    snprintf(config, sizeof(config), "witness = %s\n", path);
    start_listening();
    rig_open(&rig, config);
    turn();
    meet();
    CU_ASSERT_EQUAL(the_link()->state, LINK_GREETED);
    CU_ASSERT_FALSE(link_await(the_link(), clock_now() + soon_ns, why, sizeof(why)));
    CU_ASSERT_STRING_EQUAL(why, "it does not answer");
    say(MORTISE_WITNESS_WELCOME, "");
    CU_ASSERT(link_await(the_link(), clock_now() + patience_ns, why, sizeof(why)));
    CU_ASSERT_EQUAL(the_link()->state, LINK_WATCHED);
    CU_ASSERT(link_await(the_link(), clock_now(), why, sizeof(why))); /* it knows already */
    rig_close(&rig);
    stop_listening();

    start_listening();
    rig_open(&rig, config);
    turn();
    meet();
    shut(&peer);
    CU_ASSERT_FALSE(link_await(the_link(), clock_now() + patience_ns, why, sizeof(why)));
    CU_ASSERT_STRING_EQUAL(why, "it has ended");
    stop_listening();
    CU_ASSERT_FALSE(link_await(the_link(), clock_now() + patience_ns, why, sizeof(why)));
    CU_ASSERT_STRING_EQUAL(why, "nobody listens, or it cannot be used");
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"HELLO", test_hello},
        {"no witness", test_nobody},
        {"the witness comes late", test_comes_late},
        {"the witness comes back", test_comes_back},
        {"the witness hangs", test_hangs},
        {"descriptors that the program closed", test_closed_by_the_program},
        {"settings", test_settings},
        {"no socket has room for its path", test_long_path},
        {"its path", test_path},
        {"required", test_required},
        CU_TEST_INFO_NULL,
    };
    signal(SIGPIPE, SIG_IGN);
    return rig_run("witness_link", tests);
}
