/* record.c - what the run itself tells the checker of tests/torture (history.h): what holders saw, the fenced counter,
 * which processes were killed, and when the faults ended. */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *file;
static struct {
    uint64_t fence, value;
} counters[PLAN_NAMES];

void record_begin(const char *folder)
{
    char path[300];
    snprintf(path, sizeof path, "%s/run.jsonl", folder);
    file = fopen(path, "w");
    if (!file)
        abort();
}

void record_end(void)
{
    fclose(file);
}

void record_held(int name, uint64_t token, int64_t at_ns)
{
    fprintf(file,
            "{\"event\":\"held\",\"at_ns\":%" PRId64 ",\"name\":\"%s\",\"token\":%" PRIu64 "}\n",
            at_ns, name_text(name), token);
}

void record_calm(void)
{
    fprintf(file, "{\"event\":\"calm\",\"at_ns\":%" PRId64 "}\n", sched_now());
}

void record_killed(int process, int64_t at_ns)
{
    fprintf(file, "{\"event\":\"killed\",\"at_ns\":%" PRId64 ",\"pid\":%d}\n", at_ns,
            100 + process);
    sched_trace("process %d is killed", process);
}

void record_stopped(int process, int64_t until_ns)
{
    fprintf(file,
            "{\"event\":\"stopped\",\"at_ns\":%" PRId64 ",\"until_ns\":%" PRId64 ",\"pid\":%d}\n",
            sched_now(), until_ns, 100 + process);
}

void record_left(const char *text)
{
    fprintf(file, "{\"event\":\"left\",\"text\":\"%s\"}\n", text);
}

void record_closed_by_close(const char *file_name)
{
    char path[600], line[4096];
    bool closed = false;
    int pid = 0;
    snprintf(path, sizeof path, "%s/%s", run_world.folder, file_name);
    FILE *history = fopen(path, "r");
    while (history && fgets(line, sizeof line, history) && line[0] == '{') {
        const char *opener = strstr(line, "\"pid\":");
        if (opener && pid == 0)
            pid = (int)strtol(opener + 6, NULL, 10);
        closed |= strstr(line, "\"event\":\"closed\"") != NULL;
    }
    if (history)
        fclose(history);
    if (!closed && !sched_is_killed(pid - 100))
        fprintf(file, "{\"event\":\"closed\",\"at_ns\":%" PRId64 ",\"client\":\"%.32s\"}\n",
                sched_now(), file_name);
}

/* Only one thread runs at a time, and nothing here is a point of the scheduler: each request is one step. */
static void write_line(const char *event, int name, uint64_t token, uint64_t value)
{
    fprintf(file,
            "{\"event\":\"%s\",\"token\":%" PRIu64 ",\"value\":%" PRIu64 ",\"name\":\"%s\"}\n",
            event, token, value, name_text(name));
    if (token > counters[name].fence)
        counters[name].fence = token;
}

uint64_t record_read(int name, uint64_t token)
{
    write_line("read", name, token, 0);
    return counters[name].value;
}

bool record_write(int name, uint64_t token, uint64_t value)
{
    bool taken = token >= counters[name].fence;
    write_line("write", name, token, value);
    if (taken)
        counters[name].value = value;
    return taken;
}
