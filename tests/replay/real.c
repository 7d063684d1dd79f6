/* real.c - see real.h. */
#include "real.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

const struct real *real(void)
{
    static struct real table;
    static int ready;
    if (__builtin_expect(ready, 1))
        return &table;
        /* the address of the object, because ISO C has no cast from it to a function */
#define REAL_FIND(type, name, arguments)                                                           \
    {                                                                                              \
        void *found = dlsym(RTLD_NEXT, #name);                                                     \
        if (!found)                                                                                \
            abort();                                                                               \
        memcpy(&table.name, &found, sizeof found);                                                 \
    }
    REAL_MAP(REAL_FIND)
#undef REAL_FIND
    ready = 1;
    return &table;
}
