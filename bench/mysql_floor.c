/* mysql_floor.c - the statements of a cycle by bare libmariadb; see mysql_floor.h. They are not written down here:
 * the server's log shows what the driver has executed. */
#include "mysql_floor.h"

#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

MYSQL *mysql_bare(const char *url, const char *user)
{
    char given[64], host[128], database[64];
    unsigned port;
    MYSQL *mysql = mysql_init(NULL);
    if (sscanf(url, "mysql://%63[^@]@%127[^:]:%u/%63[^?]", given, host, &port, database) != 4)
        bench_die("not mysql://user@host:port/database: %s", url);
    if (mysql == NULL || mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4") != 0 ||
        mysql_real_connect(mysql, host, user != NULL ? user : given, "", database, port, NULL,
                           CLIENT_FOUND_ROWS) == NULL)
        bench_die("%s", mysql != NULL ? mysql_error(mysql) : "out of memory");
    return mysql;
}

static void run(MYSQL *mysql, const char *text, size_t len)
{
    if (mysql_real_query(mysql, text, (unsigned long)len) != 0)
        bench_die("%s: %s", text, mysql_error(mysql));
}

static void first_value(MYSQL *mysql, const char *statement, char *value, size_t size)
{
    run(mysql, statement, strlen(statement));
    MYSQL_RES *rows = mysql_store_result(mysql);
    MYSQL_ROW row = rows != NULL ? mysql_fetch_row(rows) : NULL;
    if (row == NULL || row[0] == NULL || (size_t)snprintf(value, size, "%s", row[0]) >= size)
        bench_die("no answer: %s", statement);
    mysql_free_result(rows);
}

long long mysql_number(MYSQL *mysql, const char *statement)
{
    char value[64];
    first_value(mysql, statement, value, sizeof(value));
    return strtoll(value, NULL, 10);
}

static void set(MYSQL *mysql, const char *statement)
{
    run(mysql, statement, strlen(statement));
}

/* Finds the statement that sets this column first, for this name, because other threads of this process may be busy with
 * other names. */
static void logged(MYSQL *mysql, const char *column, const char *name, char *statement, size_t size)
{
    char hex[129], query[400];
    mysql_hex_string(hex, name, (unsigned long)strnlen(name, 64));
    snprintf(query, sizeof(query),
             "SELECT argument FROM mysql.general_log WHERE argument LIKE "
             "'UPDATE mortise_lock SET %s%%WHERE name=X''%s''%%'",
             column, hex);
    first_value(mysql, query, statement, size);
}

/* The driver sends its settings and its questions in one packet; here each is a statement of its own. */
void mysql_set_alike(MYSQL *mysql, const struct mysql_statements *statements)
{
    for (const char *text = statements->settings; *text != '\0';) {
        size_t len = strcspn(text, ";");
        run(mysql, text, len);
        text += len + strspn(text + len, ";");
    }
}

void mysql_record(const char *url, const char *name, struct mysql_statements *statements)
{
    MYSQL *root = mysql_bare(url, "root");
    char give[2048];
    set(root, "SET GLOBAL log_output = 'TABLE', GLOBAL general_log = ON");
    mortise_client *client = bench_open(url);
    bench_release(bench_acquire(client, name, NULL)); /* makes the table and the row */
    first_value(root,
                "SELECT REGEXP_SUBSTR(argument,'^(SET SESSION [^;]*;)+') FROM mysql.general_log "
                "WHERE argument LIKE 'SET SESSION %' LIMIT 1",
                statements->settings, sizeof(statements->settings));
    if (statements->settings[0] == '\0')
        bench_die("the driver's settings are not in the log");
    set(root, "TRUNCATE mysql.general_log");
    bench_release(bench_acquire(client, name, NULL));
    logged(root, "version", name, statements->take, sizeof(statements->take));
    logged(root, "grants", name, give, sizeof(give));
    set(root, "SET GLOBAL general_log = OFF");
    set(root, "TRUNCATE mysql.general_log");
    bench_close(client);
    mysql_close(root);
    char *version = strstr(give, " AND version=");
    if (version == NULL)
        bench_die("the driver executes something else: %s", give);
    version += strlen(" AND version=");
    snprintf(statements->give_head, sizeof(statements->give_head), "%.*s", (int)(version - give),
             give);
    snprintf(statements->give_tail, sizeof(statements->give_tail), "%s",
             version + strspn(version, "0123456789"));
}

void mysql_floor_cycle(MYSQL *mysql, const struct mysql_statements *statements)
{
    char give[2200];
    run(mysql, statements->take, strlen(statements->take));
    if (mysql_affected_rows(mysql) != 1)
        bench_die("not taken: %s", statements->take);
    int len = snprintf(give, sizeof(give), "%s%llu%s", statements->give_head,
                       (unsigned long long)mysql_insert_id(mysql), statements->give_tail);
    run(mysql, give, (size_t)len);
    if (mysql_affected_rows(mysql) != 1)
        bench_die("not given: %s", give);
}
