/* holders.h - how status, list and watch show a lock and its holder. */
#ifndef MORTISE_TOOLS_HOLDERS_H
#define MORTISE_TOOLS_HOLDERS_H

#include "json.h"
#include "table.h"

#include <mortise/mortise.h>

void holders_begin(struct table *table);
void holders_row(struct table *table, const mortise_info *info);
void holders_json(struct json *json, const mortise_info *info);

#endif
