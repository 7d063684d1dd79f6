/* owners.c - which data all processes of a run share, and to which process a new thread belongs. See calls.h. */
#include "calls.h"
#include "sched.h"

#include <link.h>

enum { RANGES = 256, HELD = 16 };

static struct {
    uintptr_t from, to;
} ranges[RANGES];
static int range_count;

static int note_library(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    (void)argument;
    for (int i = 0; i < info->dlpi_phnum && range_count < RANGES; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD || !(info->dlpi_phdr[i].p_flags & PF_W))
            continue;
        ranges[range_count].from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        ranges[range_count].to = ranges[range_count].from + info->dlpi_phdr[i].p_memsz;
        range_count++;
    }
    return 0;
}

void calls_find_static_data(void)
{
    range_count = 0;
    dl_iterate_phdr(note_library, NULL);
}

bool calls_is_static(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    for (int i = 0; i < range_count; i++)
        if (at >= ranges[i].from && at < ranges[i].to)
            return true;
    return false;
}

static _Thread_local const pthread_mutex_t *held[HELD];
static _Thread_local int held_count;

void calls_note_locked(const pthread_mutex_t *mutex)
{
    if (held_count < HELD)
        held[held_count] = mutex;
    held_count++;
}

void calls_note_unlocked(const pthread_mutex_t *mutex)
{
    for (int i = 0; i < held_count && i < HELD; i++)
        if (held[i] == mutex) {
            for (; i + 1 < held_count && i + 1 < HELD; i++)
                held[i] = held[i + 1];
            break;
        }
    held_count--;
}

int calls_process_of_new_thread(void)
{
    for (int i = (held_count < HELD ? held_count : HELD) - 1; i >= 0; i--)
        if (held[i]->__data.__nusers > 0)
            return (int)held[i]->__data.__nusers - 1;
    return sched_process();
}
