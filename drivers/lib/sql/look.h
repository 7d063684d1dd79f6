/* look.h - inspect, list and ping, and the small named records. */
#ifndef MORTISE_SQL_LOOK_H
#define MORTISE_SQL_LOOK_H

#include "dialect.h"

/* Sets the first step; false: it was completed. */
bool look_begin(struct sql_request *request);
enum sql_next look_step(struct sql_request *request);
void look_tell(struct sql_request *request);

#endif
