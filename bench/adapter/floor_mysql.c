/* floor_mysql.c - the bare floors on MySQL, as an adapter (adapter.h): the driver's own two statements by blocking
 * libmariadb (../mysql_floor.h), a connection for each thread; for a name that all want, GET_LOCK, which belongs to the
 * session, is no lease and has no token. The address is a URL of the driver's. */
#include "../common.h"
#include "../mysql_floor.h"
#include "adapter.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *address;
static pthread_mutex_t learning = PTHREAD_MUTEX_INITIALIZER;

struct own {
    MYSQL *mysql;
    char name[32];
    bool learnt;
    struct mysql_statements statements;
} owns[256];

static const char *open_server(const char *where)
{
    static char version[64];
    address = where;
    snprintf(version, sizeof(version), "libmariadb %s", mysql_get_client_info());
    return version;
}

static void *open_worker(unsigned number)
{
    struct own *own = &owns[number];
    snprintf(own->name, sizeof(own->name), "floor-%d/%u", (int)getpid(), number);
    own->mysql = mysql_bare(address, NULL);
    return own;
}

static void cycle(void *worker, const char *name)
{
    struct own *own = worker;
    (void)name;
    if (!own->learnt) { /* in the warm-up */
        pthread_mutex_lock(&learning);
        mysql_record(address, own->name, &own->statements);
        mysql_set_alike(own->mysql, &own->statements); /* before another one logs what is set */
        pthread_mutex_unlock(&learning);
        own->learnt = true;
    }
    mysql_floor_cycle(own->mysql, &own->statements);
}

static void ask(struct own *own, const char *function, const char *name, const char *rest)
{
    char hex[257], statement[400];
    unsigned long len = mysql_hex_string(hex, name, (unsigned long)strnlen(name, 64));
    snprintf(statement, sizeof(statement), "SELECT %s(X'%.*s'%s)", function, (int)len, hex, rest);
    if (mysql_number(own->mysql, statement) != 1)
        bench_die("%s: not done", statement);
}

static bool lock(void *worker, const char *name, void **held)
{
    (void)held;
    ask(worker, "GET_LOCK", name, ",60");
    return true;
}

static void unlock(void *worker, const char *name, void *held)
{
    (void)held;
    ask(worker, "RELEASE_LOCK", name, "");
}

int main(int argc, char **argv)
{
    return adapter_main(argc, argv,
                        &(struct adapter){.name = "floor_mysql",
                                          .open = open_server,
                                          .worker = open_worker,
                                          .cycle = cycle,
                                          .take = lock,
                                          .give = unlock});
}
