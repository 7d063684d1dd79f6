/* fifo.c - fifty waiters of ten processes are served in the order of their numbers. The program is also its own
 * second process: "fifo SERVERS NAME FILE" starts a waiter for each line that it reads, and each waiter appends its
 * token to the file while it holds the lock. */
#include "stage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROCESSES 10
#define EACH 5

struct turn {
    pthread_t thread;
    mortise_client *client;
    const char *name, *file;
};

static void *take_turn(void *argument)
{
    struct turn *turn = argument;
    mortise_lease *lease = NULL;
    char text[32];
    if (mortise_acquire(turn->client, turn->name, MORTISE_OPTIONS(.wait_ms = -1), &lease, NULL) !=
        MORTISE_OK)
        return NULL;
    int length = snprintf(text, sizeof text, "%" PRIu64 "\n", mortise_token(lease));
    int fd = open(turn->file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, (size_t)length) != length)
        fprintf(stderr, "fifo: cannot write\n");
    if (fd >= 0)
        close(fd);
    mortise_release(lease, NULL);
    return NULL;
}

int fifo_main(char **words)
{
    struct turn turns[EACH];
    char url[512], line[64];
    int count = 0;
    snprintf(url, sizeof url, "zookeeper://%s/faults?" LIFE "&" PATIENT, words[0]);
    for (int i = 0; i < EACH; i++) {
        turns[i] = (struct turn){.name = words[1], .file = words[2]};
        if (mortise_open(url, &turns[i].client, NULL) != MORTISE_OK)
            return 1;
    }
    puts("ready");
    fflush(stdout);
    while (count < EACH && fgets(line, sizeof line, stdin))
        if (pthread_create(&turns[count].thread, NULL, take_turn, &turns[count]) == 0)
            count++;
    for (int i = 0; i < count; i++)
        pthread_join(turns[i].thread, NULL);
    for (int i = 0; i < EACH; i++)
        mortise_close(turns[i].client, NULL);
    return 0;
}

static void check_order(const char *path)
{
    char *text = test_file_read(path), *at = text;
    uint64_t before = 0;
    int count = 0, disorder = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    for (char *end; *at; at = end + 1, count++) {
        uint64_t token = strtoull(at, &end, 10);
        disorder += token <= before;
        before = token;
        if (*end != '\n')
            break;
    }
    CU_ASSERT_EQUAL(count, PROCESSES * EACH);
    CU_ASSERT_EQUAL(disorder, 0);
    free(text);
}

static void test_fifty_waiters(void)
{
    static struct test_process processes[PROCESSES];
    mortise_client *holder = client_direct("");
    const char *name = fresh_name();
    char path[300], self[512] = "", line[64];
    const char *const argv[] = {self, "fifo", stage.servers, name, path, NULL};
    snprintf(path, sizeof path, "%s/order", stage.folder);
    CU_ASSERT_FATAL(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    mortise_lease *lease = take(holder, name);
    for (int i = 0; i < PROCESSES; i++) {
        CU_ASSERT_FATAL(test_spawn(&processes[i], argv));
        CU_ASSERT_FATAL(test_hear(&processes[i], line, sizeof line, TEST_PATIENCE_MS));
    }
    for (int i = 0; i < PROCESSES * EACH; i++) {
        CU_ASSERT(test_say(&processes[i % PROCESSES], "go"));
        CU_ASSERT(wait_contenders(name, i + 2));
    }
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    for (int i = 0; i < PROCESSES; i++)
        CU_ASSERT_EQUAL(test_reap(&processes[i], 3 * TEST_PATIENCE_MS), 0);
    check_order(path);
    CU_ASSERT_EQUAL(contenders(name), 0);
    client_end(holder);
}

const CU_TestInfo fifo_tests[] = {
    {"fifty waiters from ten processes", test_fifty_waiters},
    CU_TEST_INFO_NULL,
};
