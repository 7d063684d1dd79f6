/* result.c - values of results, in PostgreSQL's own binary form. Knows nothing else. */
#include "driver.h"

int64_t result_int8(const PGresult *result, int tuple, int column)
{
    const unsigned char *at = (const unsigned char *)PQgetvalue(result, tuple, column);
    uint64_t value = 0;
    if (PQgetlength(result, tuple, column) != 8)
        return 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | at[i];
    return (int64_t)value;
}

int64_t result_time(const PGresult *result, int tuple, int column)
{
    int64_t us = result_int8(result, tuple, column);
    return us == INT64_MIN ? 0 : us;
}
