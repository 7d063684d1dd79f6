/* crowd.c - a crowd of clients that open in random phases of a migration at the same moment, again and again, acquire
 * a lock, hold it for a moment and close, while crowd.sh takes the steps. Shows that no client of phase old and no
 * client of phase new have a lease at the same instant, whatever the lock.
 *
 *     crowd FOLDER [CLIENTS] [SEED]       FOLDER has old.conf, both.conf and new.conf
 *
 * Each client has a lock of its own, so only the phases keep them apart. A line on stdin, "old leases" or "new
 * refused", is repeated on stdout as soon as that has happened to a client of that phase since. The program ends at
 * the end of stdin, and prints what happened to each phase. Exit code 1: two clients of phases old and new had leases
 * together. */
#include <mortise/mortise.h>

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIENTS_MAX = 256, PHASES = 3, OLD = 0, NEW = 2, HOLD_MS = 10 };
static const char *const phases[PHASES] = {"old", "both", "new"};

static const char *folder;
static atomic_bool ending, wrong;
static atomic_ulong had[PHASES], refused[PHASES], failed[PHASES];

/* ---- who holds ------------------------------------------------------------------------------------ */

static struct holder {
    mortise_lease *lease; /* NULL: none */
    int phase;
} holders[CLIENTS_MAX];
static pthread_mutex_t holders_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_held(mortise_lease *lease)
{
    return mortise_state(lease) != MORTISE_STATE_LOST;
}

/* A lease that is held now was held a moment ago: so ours, looked at last, was there when the other was. */
static void meet(const struct holder *mine)
{
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        const struct holder *other = &holders[i];
        bool strangers = other->lease != NULL && abs(other->phase - mine->phase) == NEW - OLD;
        if (strangers && is_held(other->lease) && is_held(mine->lease)) {
            atomic_store(&wrong, true);
            fprintf(stderr,
                    "FINDING: old and new hold a lease at one instant (tokens %" PRIu64 ", %" PRIu64
                    ")\n",
                    mortise_token(other->lease), mortise_token(mine->lease));
        }
    }
}

static void hold(struct holder *mine, mortise_lease *lease, int phase)
{
    pthread_mutex_lock(&holders_lock);
    *mine = (struct holder){lease, phase};
    meet(mine);
    pthread_mutex_unlock(&holders_lock);
    poll(NULL, 0, HOLD_MS); /* the work */
    pthread_mutex_lock(&holders_lock);
    meet(mine);
    mine->lease = NULL;
    pthread_mutex_unlock(&holders_lock);
}

/* ---- a client, again and again ----------------------------------------------------------------------- */

static void count(int phase, mortise_status status, const mortise_error *error)
{
    if (status == MORTISE_OK)
        atomic_fetch_add(&had[phase], 1);
    else if (status == MORTISE_CONFIG)
        atomic_fetch_add(&refused[phase], 1);
    else if (atomic_fetch_add(&failed[phase], 1) == 0)
        fprintf(stderr, "crowd: %s: %s: %s\n", phases[phase], mortise_status_name(status),
                error->message);
}

static void visit(size_t number, int phase)
{
    char where[4096], name[32];
    mortise_client *client;
    mortise_lease *lease;
    mortise_error error;

    snprintf(where, sizeof where, "%s/%s.conf", folder, phases[phase]);
    snprintf(name, sizeof name, "lock-%zu", number);
    mortise_status status = mortise_open(where, &client, &error);
    if (status != MORTISE_OK) {
        count(phase, status, &error);
        return;
    }
    status = mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 5000), &lease, &error);
    count(phase, status, &error);
    if (status == MORTISE_OK) {
        hold(&holders[number], lease, phase);
        mortise_release(lease, NULL);
    }
    mortise_close(client, NULL);
}

struct visitor {
    pthread_t thread;
    size_t number;
    unsigned random;
};

static void *run(void *argument)
{
    struct visitor *visitor = argument;
    while (!atomic_load(&ending))
        visit(visitor->number, rand_r(&visitor->random) % PHASES);
    return NULL;
}

/* ---- all of them ---------------------------------------------------------------------------------------- */

/* Answers when the number has grown. */
static void await(const char *line)
{
    for (int phase = OLD; phase <= NEW; phase++) {
        size_t length = strlen(phases[phase]);
        if (strncmp(line, phases[phase], length) != 0)
            continue;
        atomic_ulong *number =
            strcmp(line + length, " leases\n") == 0 ? &had[phase] : &refused[phase];
        for (unsigned long before = atomic_load(number); atomic_load(number) == before;)
            poll(NULL, 0, 5);
    }
    fputs(line, stdout);
}

static void tell(void)
{
    for (int phase = OLD; phase <= NEW; phase++)
        printf("%s: %lu leases, %lu refused, %lu failed\n", phases[phase], atomic_load(&had[phase]),
               atomic_load(&refused[phase]), atomic_load(&failed[phase]));
}

int main(int argc, char **argv)
{
    static struct visitor visitors[CLIENTS_MAX];
    size_t clients = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
    char line[64];
    unsigned seed = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;

    if (argc < 2 || clients == 0 || clients > CLIENTS_MAX) {
        fprintf(stderr, "usage: crowd FOLDER [CLIENTS] [SEED]\n");
        return 64;
    }
    folder = argv[1];
    for (size_t i = 0; i < clients; i++) {
        visitors[i] = (struct visitor){.number = i, .random = seed * 1000 + (unsigned)i};
        if (pthread_create(&visitors[i].thread, NULL, run, &visitors[i]) != 0)
            return 71;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL)
        await(line);
    atomic_store(&ending, true);
    for (size_t i = 0; i < clients; i++)
        pthread_join(visitors[i].thread, NULL);
    tell();
    return atomic_load(&wrong) ? 1 : 0;
}
