/* check.h - the lines that `mortise check` and `mortise doctor` print. */
#ifndef MORTISE_TOOLS_CHECK_H
#define MORTISE_TOOLS_CHECK_H

#include "json.h"

#include <mortise/mortise.h>

#include <stdbool.h>

/* NOTE: a promise that the setup does not make. RISK: in some event two holders are possible, or locks are lost, and a setting
 * would prevent that. */
enum level { LEVEL_OK, LEVEL_NOTE, LEVEL_RISK, LEVEL_WRONG };

struct report {
    bool as_json;
    bool with_level; /* in JSON: doctor */
    struct json json;
    unsigned counts[4]; /* lines of each level */
};
void report_line(struct report *report, const char *what, enum level level, const char *detail);

/* What a driver has found out about its server, from the answer to a ping: the part after the facts, in which each finding is
 * " | risk: text" or " | note: text". */
typedef void (*check_more)(struct report *report, mortise_client *client, const char *findings,
                           int64_t took_us);
int64_t check_now_us(void); /* CLOCK_MONOTONIC */
/* All checks; if `more` is given, it is called when the server has answered. Returns the exit code. */
int check_all(struct report *report, check_more more);
/* The whole command: its options, its JSON, its exit code. text: what --help prints. */
int check_command(int argc, char **argv, const char *text, struct report *report, check_more more);

#endif
