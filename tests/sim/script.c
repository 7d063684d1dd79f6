/* script.c - the sim's rules: which op has which outcome. Knows only the kind and the name of an op; flight.c says
 * what an outcome means. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct rule {
    struct rule *next, *previous;
    sim_rule is;
    char *name;
    size_t name_len;
    int number;
    unsigned seen;
    uint64_t hits;
    bool ended;
};

static struct rule *rules;

static struct rule *find_rule(int number)
{
    struct rule *rule;
    DL_SEARCH_SCALAR(rules, rule, number, number);
    return rule;
}

int script_add(const sim_rule *is)
{
    static int last_number;
    struct rule *rule = calloc(1, sizeof *rule);
    if (!rule || (is->name && !(rule->name = strdup(is->name)))) {
        free(rule);
        return 0;
    }
    rule->is = *is;
    rule->name_len = is->name ? strlen(is->name) : 0;
    rule->number = ++last_number;
    DL_APPEND2(rules, rule, previous, next);
    return rule->number;
}

static bool rule_matches(struct rule *rule, const mortise_op *op)
{
    if (rule->ended || (rule->is.times && rule->hits >= rule->is.times))
        return false;
    if (rule->is.kinds && !(rule->is.kinds & SIM_OP(op->kind)))
        return false;
    if (rule->name &&
        (rule->name_len != op->name_len || memcmp(rule->name, op->name, op->name_len) != 0))
        return false;
    return rule->seen++ >= rule->is.skip;
}

const sim_rule *script_match(const mortise_op *op, int *number)
{
    struct rule *rule;
    DL_FOREACH (rules, rule) {
        if (rule_matches(rule, op)) {
            rule->hits++;
            sim_changed();
            *number = rule->number;
            return &rule->is;
        }
    }
    return NULL;
}

void script_end(int number)
{
    struct rule *rule = find_rule(number);
    if (rule)
        rule->ended = true;
}

uint64_t script_hits(int number)
{
    struct rule *rule = find_rule(number);
    return rule ? rule->hits : 0;
}

bool script_wait_hits(int number, uint64_t n, int64_t deadline_ns)
{
    while (script_hits(number) < n)
        if (!sim_wait_until(deadline_ns))
            return script_hits(number) >= n;
    return true;
}

bool script_exists(void)
{
    return rules != NULL;
}

void script_reset(void)
{
    struct rule *rule, *next;
    DL_FOREACH_SAFE (rules, rule, next) {
        DL_DELETE2(rules, rule, previous, next);
        free(rule->name);
        free(rule);
    }
}
