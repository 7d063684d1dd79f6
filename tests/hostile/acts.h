/* acts.h - tables of what lying servers send; each table ends with an entry without a name. */
#ifndef MORTISE_TESTS_HOSTILE_ACTS_H
#define MORTISE_TESTS_HOSTILE_ACTS_H

#include "liar.h"

extern const struct act any_acts[], redis_acts[], postgres_acts[], mysql_acts[], zookeeper_acts[],
    etcd_acts[];

#endif
