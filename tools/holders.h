/* holders.h - how status, list and watch show a lock and its holder. */
#ifndef MORTISE_TOOLS_HOLDERS_H
#define MORTISE_TOOLS_HOLDERS_H

#include "json.h"
#include "table.h"

#include <mortise/mortise.h>

/* Begins the table, which has fewer columns on a terminal. There the state of a shared lock is "shared 2/5" (two holders of
 * five permits), and ", witness" follows if the holder is watched. Call witness_ask_begin() before. */
void holders_begin(struct table *table);
void holders_row(struct table *table, const mortise_info *info);
/* Writes the members of one lock. */
void holders_json(struct json *json, const mortise_info *info);
/* Writes the members of one holder: those that each lease of a shared lock has of its own. */
void holders_json_one(struct json *json, const mortise_info *info);
/* How many leases hold the lock; 0: none. Drivers without shared locks do not count. */
uint32_t holders_count(const mortise_info *info);
/* "", " and another" or " and 4 others": who holds the lock beside the holder that info names. */
const char *holders_others(const mortise_info *info, char *buffer, size_t size);

#endif
