/* refused_memory.h - an allocation of one library fails, by its number. For a program of one file. */
#ifndef MORTISE_TESTS_REFUSED_MEMORY_H
#define MORTISE_TESTS_REFUSED_MEMORY_H

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define IN_PLACE __attribute__((visibility("default"))) /* of the system's, also for libraries */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);

static const char *refused_library;
static uintptr_t code_begin, code_end; /* its code */
static atomic_int refuse_at, asked;    /* its allocation of that number fails. 0: none does */

static int find_code(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    (void)argument;
    if (strstr(info->dlpi_name, refused_library) == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X) != 0) {
            code_begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            code_end = code_begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static bool is_refused(const void *caller)
{
    int at = atomic_load(&refuse_at);
    bool is_its = (uintptr_t)caller >= code_begin && (uintptr_t)caller < code_end;
    return at != 0 && is_its && atomic_fetch_add(&asked, 1) + 1 == at;
}

IN_PLACE void *malloc(size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

IN_PLACE void *calloc(size_t count, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

IN_PLACE void *realloc(void *block, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_realloc(block, size);
}

/* The library whose path has that in it, if it is loaded by now. */
static void refuse_begin(const char *library)
{
    refused_library = library;
    if (code_begin == 0)
        dl_iterate_phdr(find_code, NULL);
}

static void refuse(int at)
{
    atomic_store(&asked, 0);
    atomic_store(&refuse_at, at);
}

/* Whether it came to that. */
static bool refuse_end(void)
{
    int at = atomic_exchange(&refuse_at, 0);
    return atomic_load(&asked) >= at;
}

#endif
