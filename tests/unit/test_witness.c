/* test_witness.c - what a witness sees of a client: each cell of the table of slots in <mortise/witness.h>, and of the
 * table of connections in core/witness/link.h; and the release of a dead process's claims. The test is the witness: it
 * listens, gets the area, and reads it as it would after a death. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct rig rig, second;
static struct outcome got, other;
static int listener = -1, peer = -1, area = -1, pidfd = -1;
static char path[300], config[700], config_file[700];

/* ---- the test as the witness ----------------------------------------------------------------------- */

static void start_listening(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    unlink(path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    CU_ASSERT_EQUAL_FATAL(listen(listener, 8), 0);
}

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void stop_listening(void)
{
    shut(&listener);
    shut(&peer);
    shut(&area);
    shut(&pidfd);
    unlink(path);
}

static struct {
    mortise_witness_message head;
    char text[MORTISE_WITNESS_TEXT_MAX + 1];
} in;

/* The next message of the client; false: end of file. */
static bool hear(void)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {&in, sizeof(in)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    memset(&in, 0, sizeof(in));
    if (recvmsg(peer, &message, MSG_CMSG_CLOEXEC) <= 0)
        return false;
    struct cmsghdr *fds = CMSG_FIRSTHDR(&message);
    if (fds != NULL && fds->cmsg_len == CMSG_LEN(2 * sizeof(int))) {
        shut(&pidfd);
        shut(&area);
        memcpy(&pidfd, CMSG_DATA(fds), sizeof(int));
        memcpy(&area, CMSG_DATA(fds) + sizeof(int), sizeof(int));
    }
    return true;
}

static void say(mortise_witness_kind kind, const char *text)
{
    struct {
        mortise_witness_message head;
        char text[200];
    } out = {.head = {.magic = MORTISE_WITNESS_MAGIC,
                      .version = MORTISE_WITNESS_VERSION,
                      .kind = (uint16_t)kind,
                      .text_len = (uint32_t)strlen(text)}};
    memcpy(out.text, text, strlen(text));
    size_t size = sizeof(out.head) + strlen(text);
    CU_ASSERT_EQUAL(send(peer, &out, size, MSG_NOSIGNAL), (ssize_t)size);
}

static void meet(void)
{
    shut(&peer);
    peer = accept(listener, NULL, NULL);
    CU_ASSERT_FATAL(peer >= 0);
    CU_ASSERT_FATAL(hear());
    CU_ASSERT_EQUAL(in.head.kind, MORTISE_WITNESS_HELLO);
    CU_ASSERT_FATAL(area >= 0 && pidfd >= 0);
}

static mortise_witness_area head(void)
{
    mortise_witness_area head = {0};
    CU_ASSERT_EQUAL(pread(area, &head, sizeof(head), 0), sizeof(head));
    return head;
}

static mortise_witness_slot slot(uint32_t index)
{
    static mortise_witness_slot slot;
    off_t at = (off_t)(sizeof(mortise_witness_area) + index * sizeof(slot));
    CU_ASSERT_EQUAL(pread(area, &slot, sizeof(slot), at), sizeof(slot));
    CU_ASSERT_EQUAL(slot.sequence % 2, 0);
    return slot;
}

static unsigned count(mortise_witness_state state)
{
    unsigned found = 0;
    uint32_t used = head().used;
    for (uint32_t i = 0; i < used; i++)
        found += slot(i).state == (uint32_t)state;
    return found;
}

#define IN_USE() (count(MORTISE_WITNESS_ASKED) + count(MORTISE_WITNESS_HELD))

/* ---- the client ------------------------------------------------------------------------------------ */

static struct witness_link *the_link(void)
{
    return &rig.client->locks.witness;
}

static void turn(void)
{
    pthread_mutex_lock(&rig.client->locks.lock);
    witness_turn_locked(&rig.client->locks);
    locks_unlock(&rig.client->locks, START_NOW);
}

/* A client with a witness, this test. */
static void start(const char *settings)
{
    snprintf(path, sizeof(path), "%s/w", rig_folder);
    snprintf(config, sizeof(config), "ttl = 3s\nhandover_max = 0\nwitness = %s\n%s", path,
             settings);
    start_listening();
    rig_open(&rig, config);
    turn();
    meet();
    say(MORTISE_WITNESS_WELCOME, "");
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_WATCHED);
    tap(&rig);
}

static void finish(void)
{
    CU_ASSERT_EQUAL(IN_USE(), 0);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
    CU_ASSERT(hear());
    CU_ASSERT_EQUAL(in.head.kind, MORTISE_WITNESS_BYE);
    CU_ASSERT_FALSE(hear());
    stop_listening();
}

static void release(mortise_lease *lease)
{
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
}

/* ---- slots ----------------------------------------------------------------------------------------- */

/* The state of the only slot when the driver is given a request: what was in the area before the request left. */
static mortise_witness_slot at_start[8];
static size_t starts;

static bool look_at_start(mortise_op *op)
{
    if ((op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RENEW) && starts < 8)
        at_start[starts++] = slot(0);
    return false;
}

static void test_before_the_request(void)
{
    start("");
    starts = 0;
    tap_answer = look_at_start;
    mortise_lease *lease = take(&rig, "orders", MORTISE_OPTIONS(.owner = "me", .ttl_ms = 5000));
    const mortise_op *op = &tapped(MORTISE_OP_ACQUIRE, 0)->op;
    CU_ASSERT_EQUAL_FATAL(starts, 1);
    CU_ASSERT_EQUAL(at_start[0].state, MORTISE_WITNESS_ASKED);
    CU_ASSERT_EQUAL(at_start[0].name_len, 6);
    CU_ASSERT_EQUAL(memcmp(at_start[0].name, "orders", 6), 0);
    CU_ASSERT_EQUAL(at_start[0].owner_len, 2);
    CU_ASSERT_EQUAL(memcmp(at_start[0].owner, "me", 2), 0);
    CU_ASSERT_EQUAL(memcmp(at_start[0].grant, op->grant.bytes, sizeof(op->grant)), 0);
    CU_ASSERT_EQUAL(at_start[0].ttl_ms, 5000);
    CU_ASSERT_EQUAL(at_start[0].ends_ns, INT64_MAX);
    CU_ASSERT_EQUAL(slot(0).state, MORTISE_WITNESS_HELD);
    CU_ASSERT_EQUAL(slot(0).ends_ns, START_NS + 10000 * MS);
    CU_ASSERT_EQUAL(slot(0).flags, 0);
    advance_ms(1700); /* renewed */
    CU_ASSERT_EQUAL_FATAL(starts, 2);
    CU_ASSERT_EQUAL(at_start[1].state, MORTISE_WITNESS_HELD);
    CU_ASSERT_EQUAL(at_start[1].ends_ns, tapped(MORTISE_OP_RENEW, 0)->at_ns + 10000 * MS);
    release(lease);
    CU_ASSERT_EQUAL(slot(0).state, MORTISE_WITNESS_FREE);
    finish();
}

static void test_lost_reply(void)
{
    start("");
    int rule = SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_LOSE_REPLY,
                      .status = MORTISE_INDETERMINATE);
    int hold = SCRIPT(.kinds = OP(ACQUIRE), .hold_request = true);
    want(&rig, &got, "a", FOREVER);
    advance_ms(1);
    CU_ASSERT_EQUAL(sim->hits(rule), 1);
    mortise_witness_slot asked = slot(0);
    CU_ASSERT_EQUAL(asked.state, MORTISE_WITNESS_ASKED);
    sim->let_go(hold);
    sim->end(hold);
    settle();
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(slot(0).state,
                    MORTISE_WITNESS_ASKED); /* the first request may be executed yet */
    CU_ASSERT_EQUAL(memcmp(slot(0).grant, asked.grant, sizeof(asked.grant)), 0);
    CU_ASSERT_EQUAL(head().used, 1);
    release(got.lease);
    finish();
}

static void test_busy(void)
{
    start("");
    mortise_lease *lease = take(&rig, "a", NULL);
    want(&rig, &got, "a", FOREVER);
    advance_ms(1);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 1);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_ASKED), 0); /* it pauses, and nothing of it is there */
    release(lease);
    settle();
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 1);
    release(got.lease);
    finish();
}

static void test_given_up(void)
{
    start("");
    int hold = SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .hold_request = true,
                      .on_cancel = SIM_CANCEL_IGNORED);
    int end = SCRIPT(.kinds = OP(RELEASE), .hold_reply = true);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_ASKED), 1); /* LEAVING */
    sim->let_go(hold);
    settle();
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_ASKED), 1); /* ENDING */
    sim->let_go(end);
    sim->end(end);
    settle();
    finish();
}

static void test_downgrade_and_share(void)
{
    start("");
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT_EQUAL(slot(0).flags, 0);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(slot(0).flags, MORTISE_WITNESS_EITHER);
    release(lease);
    lease = take(&rig, "a", MORTISE_OPTIONS(.mode = MORTISE_SHARED, .permits = 7));
    CU_ASSERT_EQUAL(slot(0).flags, MORTISE_WITNESS_SHARED);
    CU_ASSERT_EQUAL(slot(0).permits, 7);
    release(lease);
    finish();
}

static void test_guests(void)
{
    start("");
    rig.client->locks.settings.handover_max = 64;
    mortise_lease *one = take(&rig, "a", MORTISE_OPTIONS(.mode = MORTISE_SHARED));
    mortise_lease *two = take(&rig, "a", MORTISE_OPTIONS(.mode = MORTISE_SHARED));
    CU_ASSERT_EQUAL(stats_of(&rig).joins, 1);
    CU_ASSERT_EQUAL(IN_USE(), 1);
    release(one);
    CU_ASSERT_EQUAL(IN_USE(), 1); /* the guest has it */
    release(two);
    finish();
}

static void test_lost(void)
{
    start("");
    mortise_lease *lease = take(&rig, "a", NULL);
    sim->lose_all();
    advance_ms(1100);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD),
                    1); /* its lease is not released; a release finds nothing */
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    finish();
}

static void test_many(void)
{
    enum { MANY = 300 };
    mortise_lease *leases[MANY];
    char name[16];
    start("");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            snprintf(name, sizeof(name), "%d", i);
            leases[i] = take(&rig, name, NULL);
        }
        CU_ASSERT_EQUAL(head().used, MANY);
        CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), MANY);
        for (int i = 0; i < MANY; i++)
            release(leases[i]);
        CU_ASSERT_EQUAL(IN_USE(), 0);
    }
    CU_ASSERT_EQUAL(fcntl(area, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    finish();
}

/* More claims than slots: those are not witnessed, and nothing else changes. */
static void test_no_slot_left(void)
{
    start("");
    rig.client->locks.area.most = rig.client->locks.area.ready;
    mortise_lease *leases[20];
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "%d", i);
        leases[i] = take(&rig, name, NULL);
    }
    CU_ASSERT_EQUAL(IN_USE(), rig.client->locks.area.most);
    for (int i = 0; i < 20; i++)
        release(leases[i]);
    finish();
}

/* The claims that a client leaves to their ttl when it closes are the witness's when the process ends. */
static void test_left_by_close(void)
{
    start("close_timeout = 0ms\n");
    take(&rig, "a", NULL);
    SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(rig_close_any(&rig), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 1);
    CU_ASSERT_FALSE(hear()); /* no BYE */
    stop_listening();
    sim->lose_all();
}

/* ---- the connection -------------------------------------------------------------------------------- */

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

/* ---- what a witness does ----------------------------------------------------------------------------- */

static void released(mortise_status status, const mortise_error *error, void *user_data)
{
    (void)error;
    told(status, NULL, NULL, user_data);
}

static void bury(const mortise_witness_slot *dead, struct outcome *outcome)
{
    memset(outcome, 0, sizeof(*outcome));
    CU_ASSERT_EQUAL(mortise_release_dead(second.handle, dead, released, outcome, NULL), MORTISE_OK);
    settle();
}

/* The claim of "a", held by a process that is dead for the test: no request of it comes any more. */
static mortise_witness_slot die_holding(mortise_lease **lease)
{
    start("");
    *lease = take(&rig, "a", MORTISE_OPTIONS(.no_renew = true));
    rig_open(&second, "ttl = 3s\nwitness = off\n");
    return slot(0);
}

static void test_release_of_a_dead_holder(void)
{
    mortise_lease *lease;
    mortise_witness_slot dead = die_holding(&lease);
    bury(&dead, &got);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    mortise_lease *successor = take(&second, "a", NULL);
    bury(&dead, &got); /* late, and twice: it does nothing to the successor */
    CU_ASSERT_EQUAL(got.status, MORTISE_LOST);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(mortise_state(successor), MORTISE_STATE_HELD);
    advance_ms(1100);
    CU_ASSERT_EQUAL(mortise_state(successor), MORTISE_STATE_HELD);
    release(successor);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&second);
    finish();
}

/* ASKED: the request arrives after the first release. The releases go on until the ttl is over. */
static void test_release_of_a_dead_caller(void)
{
    start("");
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .request_ns = 700 * MS,
           .on_cancel = SIM_CANCEL_IGNORED);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 100, .no_renew = true));
    mortise_witness_slot dead = slot(0);
    CU_ASSERT_EQUAL(dead.state, MORTISE_WITNESS_ASKED);
    rig_open(&second, "witness = off\n");
    bury(&dead, &other);
    CU_ASSERT_EQUAL(other.calls, 1); /* told with the first answer */
    CU_ASSERT_EQUAL(other.status, MORTISE_LOST);
    size_t ends = sim->count(MORTISE_OP_RELEASE);
    advance_ms(650);
    CU_ASSERT(sim->count(MORTISE_OP_RELEASE) > ends + 2);
    ends = sim->count(MORTISE_OP_RELEASE);
    advance_ms(5000); /* the ttl, and the last pause */
    CU_ASSERT(sim->count(MORTISE_OP_RELEASE) > ends);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    CU_ASSERT_EQUAL(other.calls, 1);
    ends = sim->count(MORTISE_OP_RELEASE);
    advance_ms(20000);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_RELEASE), ends); /* and no longer */
    CU_ASSERT_EQUAL(second.client->locks.outstanding, 0);
    rig_close(&second);
    finish();
}

static void test_release_without_a_backend(void)
{
    mortise_lease *lease;
    mortise_witness_slot dead = die_holding(&lease);
    int away = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    bury(&dead, &got);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(1500);
    CU_ASSERT_EQUAL(got.calls, 0);
    sim->end(away);
    advance_ms(1400);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    bury(&dead, &got); /* and if it never comes back: until the ttl is over */
    away = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    bury(&dead, &got);
    advance_ms(6000);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    sim->end(away);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&second);
    finish();
}

static void test_a_hostile_slot(void)
{
    mortise_lease *lease;
    const mortise_witness_slot dead = die_holding(&lease);
    mortise_witness_slot bad[] = {dead, dead, dead, dead, dead, dead, dead, dead};
    bad[0].state = 3;
    bad[1].state = MORTISE_WITNESS_FREE;
    bad[2].name_len = MORTISE_NAME_MAX + 1;
    bad[3].name_len = 0;
    bad[4].owner_len = UINT32_MAX;
    bad[5].ttl_ms = INT64_MAX;
    bad[6].name[0] = '\0';
    bad[7].flags = UINT32_MAX;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CU_ASSERT_EQUAL(mortise_release_dead(second.handle, &bad[i], released, &got, NULL),
                        MORTISE_INVALID);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 0);
    release(lease);
    rig_close(&second);
    finish();
}

/* A witness opens the config of others, but not their observers, and is nobody's client. */
static void test_open_for_dead(void)
{
    mortise_client *client = NULL;
    mortise_error error = {.message = ""};
    start("");
    snprintf(config_file, sizeof(config_file), "%s", mortise_config_source(rig.handle));
    CU_ASSERT_EQUAL_FATAL(mortise_open_for_dead(config_file, &client, &error), MORTISE_OK);
    struct client *opened = slab_find(&client_slab, client);
    CU_ASSERT_EQUAL(opened->locks.witness.state, LINK_OFF);
    CU_ASSERT_EQUAL(mortise_config_print(client), mortise_config_print(rig.handle));
    struct rig third = {client, opened};
    rig_close(&third);
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a slot is whole before its request leaves", test_before_the_request},
        {"a reply is lost", test_lost_reply},
        {"BUSY leaves nothing", test_busy},
        {"a caller gives up", test_given_up},
        {"a downgrade, and permits", test_downgrade_and_share},
        {"guests share one slot", test_guests},
        {"lost by the backend's word", test_lost},
        {"hundreds of claims", test_many},
        {"no slot is left", test_no_slot_left},
        {"a close that leaves a claim behind", test_left_by_close},
        {"HELLO", test_hello},
        {"no witness", test_nobody},
        {"the witness comes late", test_comes_late},
        {"the witness comes back", test_comes_back},
        {"the witness hangs", test_hangs},
        {"descriptors that the program closed", test_closed_by_the_program},
        {"settings", test_settings},
        {"required", test_required},
        {"a dead holder", test_release_of_a_dead_holder},
        {"a dead caller", test_release_of_a_dead_caller},
        {"the backend is away", test_release_without_a_backend},
        {"a hostile slot", test_a_hostile_slot},
        {"opened for the dead", test_open_for_dead},
        CU_TEST_INFO_NULL,
    };
    signal(SIGPIPE, SIG_IGN);
    return rig_run("witness", tests);
}
