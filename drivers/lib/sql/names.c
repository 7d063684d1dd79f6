/* names.c - see names.h. Knows no request. */
#include "names.h"

#include <stdlib.h>
#include <string.h>

void name_place_go(struct sql_name *name, enum name_event event)
{
    static const unsigned char table[PLACE_EVENTS][PLACES] = {
        [PLACE_WANTED] = {PLACE_TO_ENTER, PLACE_TO_ENTER, PLACE_LISTED, PLACE_TO_ENTER},
        [PLACE_DEAF] = {PLACE_NONE, PLACE_NONE, PLACE_LISTED, PLACE_TO_LEAVE},
        [PLACE_UNWANTED] = {PLACE_NONE, PLACE_NONE, PLACE_TO_LEAVE, PLACE_TO_LEAVE},
        [PLACE_BEGUN] = {PLACE_NONE, PLACE_NONE, PLACE_LISTED, PLACE_LISTED},
        [PLACE_ENTERED] = {PLACE_LISTED, PLACE_LISTED, PLACE_LISTED, PLACE_LISTED},
        [PLACE_LEFT] = {PLACE_NONE, PLACE_NONE, PLACE_NONE, PLACE_NONE},
        [PLACE_UNLISTED] = {PLACE_NONE, PLACE_TO_ENTER, PLACE_NONE, PLACE_NONE},
        [PLACE_STRAY] = {PLACE_TO_LEAVE, PLACE_TO_LEAVE, PLACE_TO_LEAVE, PLACE_TO_LEAVE},
    };
    name->place = (enum name_place)table[event][name->place];
}

struct sql_name *name_find(struct sql_locks *locks, const char *bytes, size_t len)
{
    struct sql_name *name = NULL;
    if (locks->names != NULL)
        HASH_FIND(hh, locks->names, bytes, len, name);
    return name;
}

struct sql_name *name_make(struct sql_locks *locks, const char *bytes, size_t len)
{
    struct sql_name *name = name_find(locks, bytes, len);
    if (name != NULL || (name = calloc(1, sizeof(*name) + len)) == NULL)
        return name;
    memcpy(name->bytes, bytes, len);
    name->len = (uint32_t)len;
    name->grace_ns = name->check_ns = MORTISE_NEVER;
    HASH_ADD(hh, locks->names, bytes, len, name);
    if (name->hh.tbl == NULL) {
        free(name);
        return NULL;
    }
    return name;
}

void name_drop_if_idle(struct sql_locks *locks, struct sql_name *name)
{
    if (name->references > 0 || name->watched || name->place != PLACE_NONE ||
        name->errand != NULL || name->check_ns != MORTISE_NEVER)
        return;
    HASH_DEL(locks->names, name);
    free(name);
}

void name_unref(struct sql_locks *locks, struct sql_name *name)
{
    name->references--;
    name_drop_if_idle(locks, name);
}

void names_free(struct sql_locks *locks)
{
    struct sql_name *name, *next;
    HASH_ITER (hh, locks->names, name, next) {
        HASH_DEL(locks->names, name);
        free(name);
    }
}
