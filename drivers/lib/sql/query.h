/* query.h - inspect, list and ping, and the small named records. */
#ifndef MORTISE_SQL_QUERY_H
#define MORTISE_SQL_QUERY_H

#include "dialect.h"

/* Sets the first step. False: the op was completed. */
bool query_begin(struct sql_request *request);
enum sql_next query_step(struct sql_request *request);
void query_tell(struct sql_request *request);

#endif
