/* mysql_functions.h - functions in place of libmariadb's, which they call. For a program of one file. */
#ifndef MORTISE_TESTS_MYSQL_FUNCTIONS_H
#define MORTISE_TESTS_MYSQL_FUNCTIONS_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* libmariadb's own; NULL: there is none. */
static void *real(const char *name)
{
    void *library = dlopen("libmariadb.so.3", RTLD_NOW | RTLD_NOLOAD);
    void *function = library != NULL ? dlsym(library, name) : NULL;
    if (library != NULL)
        dlclose(library);
    return function;
}

/* Connections for which certificates to trust were named, or none. */
static atomic_int trusting, trusting_none;

__attribute__((visibility("default"))) int mysql_ssl_set(void *mysql, const char *key,
                                                         const char *cert, const char *ca,
                                                         const char *path, const char *cipher);
int mysql_ssl_set(void *mysql, const char *key, const char *cert, const char *ca, const char *path,
                  const char *cipher)
{
    int (*set)(void *, const char *, const char *, const char *, const char *, const char *);
    *(void **)&set = real("mysql_ssl_set");
    atomic_fetch_add(ca != NULL || path != NULL ? &trusting : &trusting_none, 1);
    return set != NULL ? set(mysql, key, cert, ca, path, cipher) : 1;
}

/* What the server calls this client's host, in the only answer with four columns. NULL: what it says. */
static _Atomic(char *) peer_name;
static atomic_bool galera; /* it says that it is a node of Galera */
/* Its innodb_doublewrite, in the only answer with twelve columns. NULL: what it says. */
static _Atomic(char *) doublewrite;

__attribute__((visibility("default"))) char **mysql_fetch_row(void *rows);
char **mysql_fetch_row(void *rows)
{
    static char on[] = "ON";
    char **(*fetch)(void *);
    unsigned (*columns)(void *);
    *(void **)&fetch = real("mysql_fetch_row");
    *(void **)&columns = real("mysql_num_fields");
    char *name = atomic_load(&peer_name), **row = fetch != NULL ? fetch(rows) : NULL;
    if (row != NULL && name != NULL && columns != NULL && columns(rows) == 4)
        row[2] = name;
    char *writes = atomic_load(&doublewrite);
    if (row != NULL && writes != NULL && columns != NULL && columns(rows) == 12)
        row[6] = writes;
    if (row != NULL && row[0] != NULL && atomic_load(&galera) && strcmp(row[0], "wsrep_on") == 0)
        row[1] = on;
    return row;
}

#endif
