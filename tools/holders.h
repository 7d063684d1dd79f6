/* holders.h - how status, list and watch show a lock and its holder. */
#ifndef MORTISE_TOOLS_HOLDERS_H
#define MORTISE_TOOLS_HOLDERS_H

#include "json.h"
#include "table.h"

#include <mortise/mortise.h>

/* On a terminal fewer columns: the state of a shared lock is "shared 2/5", two holders of five permits; ", witness" follows
 * if the holder is watched. The client was given to witness_ask_begin(). */
void holders_begin(struct table *table);
void holders_row(struct table *table, const mortise_info *info);
/* The members of one lock. */
void holders_json(struct json *json, const mortise_info *info);
/* Of one holder: what each lease of a shared lock has for itself. */
void holders_json_one(struct json *json, const mortise_info *info);
/* How many leases hold the lock; 0: none. Drivers without shared locks do not count. */
uint32_t holders_count(const mortise_info *info);
/* "", " and another" or " and 4 others": who holds the lock beside the holder that info names. */
const char *holders_others(const mortise_info *info, char *buffer, size_t size);

#endif
