/* calls_atomic.c - atomic operations of code that was compiled with -fsanitize=thread, and is not linked with the
 * sanitizer.
 *
 * Such code calls a function for each access to memory. Those for atomic operations are a point of the scheduler here, so
 * that another thread may come between two of them; all others do nothing. Only one thread runs at a time, so every
 * operation may be a plain one. Code that is compiled as usual never calls these functions. */
#include "sched.h"

#include <stddef.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wmissing-declarations"

static inline void point(void)
{
    if (sched_on())
        sched_point(POINT_ATOMIC);
}

#define ATOMICS(bits, type)                                                                        \
    type __tsan_atomic##bits##_load(const volatile type *a, int order)                             \
    {                                                                                              \
        (void)order;                                                                               \
        point();                                                                                   \
        return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile type *a, type value, int order)                      \
    {                                                                                              \
        (void)order;                                                                               \
        point();                                                                                   \
        __atomic_store_n(a, value, __ATOMIC_SEQ_CST);                                              \
    }                                                                                              \
    CHANGE(bits, type, exchange, __atomic_exchange_n)                                              \
    CHANGE(bits, type, fetch_add, __atomic_fetch_add)                                              \
    CHANGE(bits, type, fetch_sub, __atomic_fetch_sub)                                              \
    CHANGE(bits, type, fetch_and, __atomic_fetch_and)                                              \
    CHANGE(bits, type, fetch_or, __atomic_fetch_or)                                                \
    CHANGE(bits, type, fetch_xor, __atomic_fetch_xor)                                              \
    SWAP(bits, type, strong)                                                                       \
    SWAP(bits, type, weak)                                                                         \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *a, type expected, type value,   \
                                                    int order, int failure)                        \
    {                                                                                              \
        (void)order;                                                                               \
        (void)failure;                                                                             \
        point();                                                                                   \
        __atomic_compare_exchange_n(a, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
        return expected;                                                                           \
    }

#define CHANGE(bits, type, name, operation)                                                        \
    type __tsan_atomic##bits##_##name(volatile type *a, type value, int order)                     \
    {                                                                                              \
        (void)order;                                                                               \
        point();                                                                                   \
        return operation(a, value, __ATOMIC_SEQ_CST);                                              \
    }

#define SWAP(bits, type, name)                                                                     \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile type *a, type *expected,            \
                                                      type value, int order, int failure)          \
    {                                                                                              \
        (void)order;                                                                               \
        (void)failure;                                                                             \
        point();                                                                                   \
        return __atomic_compare_exchange_n(a, expected, value, 0, __ATOMIC_SEQ_CST,                \
                                           __ATOMIC_SEQ_CST);                                      \
    }

ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

void __tsan_atomic_thread_fence(int order)
{
    (void)order;
}

void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}

#define ACCESS(name)                                                                               \
    void __tsan_##name(void *address)                                                              \
    {                                                                                              \
        (void)address;                                                                             \
    }

ACCESS(read1)
ACCESS(read2)
ACCESS(read4)
ACCESS(read8)
ACCESS(read16)
ACCESS(write1)
ACCESS(write2)
ACCESS(write4)
ACCESS(write8)
ACCESS(write16)
ACCESS(unaligned_read2)
ACCESS(unaligned_read4)
ACCESS(unaligned_read8)
ACCESS(unaligned_read16)
ACCESS(unaligned_write2)
ACCESS(unaligned_write4)
ACCESS(unaligned_write8)
ACCESS(unaligned_write16)
ACCESS(func_entry)

void __tsan_read_range(void *address, size_t size)
{
    (void)address;
    (void)size;
}

void __tsan_write_range(void *address, size_t size)
{
    (void)address;
    (void)size;
}

void __tsan_func_exit(void)
{
}

void __tsan_init(void)
{
}
