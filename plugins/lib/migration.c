/* migration.c - the names and texts of registers and presences, and the steps of a migration: see migration.h. */
#include "migration.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEAD "mortise-migrate 1\n"

/* ---- phases and sides -------------------------------------------------------------------------- */

static const struct {
    unsigned phase;
    const char *word;
} phases[] = {{MIGRATE_OLD, "old"}, {MIGRATE_BOTH, "both"}, {MIGRATE_NEW, "new"}};
enum { PHASES = sizeof(phases) / sizeof(phases[0]) };

const char *migrate_phase_word(unsigned phase)
{
    for (size_t i = 0; i < PHASES; i++)
        if (phases[i].phase == phase)
            return phases[i].word;
    return NULL;
}

static unsigned phase_of(const char *word, size_t length)
{
    for (size_t i = 0; i < PHASES; i++)
        if (strlen(phases[i].word) == length && memcmp(phases[i].word, word, length) == 0)
            return phases[i].phase;
    return 0;
}

unsigned migrate_phase_of(const char *word)
{
    return phase_of(word, strlen(word));
}

const char *migrate_side_word(enum migrate_side side)
{
    return side == MIGRATE_FROM ? "from" : "to";
}

bool migrate_uses(unsigned phase, enum migrate_side side)
{
    return phase != (side == MIGRATE_FROM ? MIGRATE_NEW : MIGRATE_OLD);
}

/* Writes the words of a set, with `between` between them; returns the length. */
static size_t list_phases(unsigned set, const char *between, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < PHASES; i++)
        if ((set & phases[i].phase) != 0)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? between : "",
                                     phases[i].word);
    return used;
}

void migrate_phases_text(unsigned set, char text[MIGRATE_PHASES_TEXT_SIZE])
{
    char words[MIGRATE_PHASES_TEXT_SIZE - 2];
    list_phases(set, ", ", words, sizeof(words));
    snprintf(text, MIGRATE_PHASES_TEXT_SIZE, "{%s}", words);
}

/* ---- registers --------------------------------------------------------------------------------- */

const char *migrate_register_name(enum migrate_side side)
{
    return side == MIGRATE_FROM ? MIGRATE_PREFIX "register/from" : MIGRATE_PREFIX "register/to";
}

struct migrate_register migrate_register_absent(enum migrate_side side)
{
    return (struct migrate_register){.phases = side == MIGRATE_FROM ? MIGRATE_OLD | MIGRATE_BOTH
                                                                    : MIGRATE_BOTH};
}

size_t migrate_register_encode(const struct migrate_register *reg, char text[MIGRATE_RECORD_SIZE])
{
    char words[MIGRATE_PHASES_TEXT_SIZE];
    list_phases(reg->phases, " ", words, sizeof(words));
    return (size_t)snprintf(text, MIGRATE_RECORD_SIZE, HEAD "phases = %s\nfloor = %" PRIu64 "\n",
                            words, reg->floor);
}

/* Takes a line that begins with key: returns its value and moves *text to the next line. NULL if the line has another key. */
static const char *take_line(const char **text, const char *key, size_t *length)
{
    size_t head = strlen(key);
    const char *end = strchr(*text, '\n'), *value = *text + head;
    if (end == NULL || strncmp(*text, key, head) != 0)
        return NULL;
    *length = (size_t)(end - value);
    *text = end + 1;
    return value;
}

static bool read_phases(const char *words, size_t length, unsigned *set)
{
    const char *end = words + length;
    *set = 0;
    while (words < end) {
        const char *blank = memchr(words, ' ', (size_t)(end - words));
        size_t word = (size_t)((blank == NULL ? end : blank) - words);
        unsigned phase = phase_of(words, word);
        if (phase == 0 || (*set & phase) != 0 || (blank != NULL && blank + 1 == end))
            return false;
        *set |= phase;
        words += word + (blank != NULL);
    }
    return true;
}

static bool read_number(const char *digits, size_t length, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < length; i++) {
        uint64_t digit = (uint64_t)(digits[i] - '0');
        if (digits[i] < '0' || digits[i] > '9' || *number > (UINT64_MAX - digit) / 10)
            return false;
        *number = *number * 10 + digit;
    }
    return length > 0;
}

bool migrate_register_decode(enum migrate_side side, const void *text, size_t size,
                             struct migrate_register *reg)
{
    char copy[MIGRATE_RECORD_SIZE];
    const char *at = copy, *words, *digits;
    size_t words_len, digits_len;
    *reg = migrate_register_absent(side);
    if (size == 0)
        return true;
    reg->phases = 0;
    if (size >= sizeof(copy) || memchr(text, '\0', size) != NULL)
        return false;
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (strncmp(at, HEAD, strlen(HEAD)) != 0)
        return false;
    at += strlen(HEAD);
    words = take_line(&at, "phases = ", &words_len);
    digits = words == NULL ? NULL : take_line(&at, "floor = ", &digits_len);
    if (digits == NULL || *at != '\0' || !read_number(digits, digits_len, &reg->floor))
        return false;
    unsigned set;
    if (!read_phases(words, words_len, &set))
        return false;
    reg->phases = set;
    return true;
}

bool migrate_allows(const struct migrate_register *reg, unsigned phase)
{
    return (reg->phases & phase) != 0;
}

bool migrate_old_may_beside(const struct migrate_register *to)
{
    return (to->phases & MIGRATE_NEW) == 0;
}

/* ---- presences --------------------------------------------------------------------------------- */

void migrate_presence_name(unsigned phase, const char *client_id, char name[MIGRATE_NAME_SIZE])
{
    snprintf(name, MIGRATE_NAME_SIZE, MIGRATE_PRESENCES "%s/%.32s", migrate_phase_word(phase),
             client_id);
}

void migrate_presence_prefix(unsigned phase, char prefix[MIGRATE_NAME_SIZE])
{
    migrate_presence_name(phase, "", prefix);
}

bool migrate_presence_decode(const char *name, unsigned *phase,
                             char client_id[MIGRATE_CLIENT_ID_SIZE])
{
    size_t head = strlen(MIGRATE_PRESENCES);
    if (strncmp(name, MIGRATE_PRESENCES, head) != 0)
        return false;
    const char *word = name + head, *slash = strchr(word, '/');
    if (slash == NULL || (*phase = phase_of(word, (size_t)(slash - word))) == 0)
        return false;
    if (strspn(slash + 1, "0123456789abcdef") != MIGRATE_CLIENT_ID_SIZE - 1 ||
        strlen(slash + 1) != MIGRATE_CLIENT_ID_SIZE - 1)
        return false;
    if (client_id != NULL)
        memcpy(client_id, slash + 1, MIGRATE_CLIENT_ID_SIZE);
    return true;
}

/* ---- stages and steps -------------------------------------------------------------------------- */

static const struct {
    unsigned from, to;
    const char *word;
} stages[] = {
    [MIGRATE_STAGE_1] = {MIGRATE_OLD | MIGRATE_BOTH, MIGRATE_BOTH, "1"},
    [MIGRATE_STAGE_1_TO_2] = {MIGRATE_BOTH, MIGRATE_BOTH, "between 1 and 2"},
    [MIGRATE_STAGE_2] = {MIGRATE_BOTH, MIGRATE_BOTH | MIGRATE_NEW, "2"},
    [MIGRATE_STAGE_2_TO_3] = {MIGRATE_BOTH, MIGRATE_NEW, "between 2 and 3"},
    [MIGRATE_STAGE_3] = {0, MIGRATE_NEW, "3"},
    [MIGRATE_STAGE_UNHEARD_OF] = {UINT32_MAX, UINT32_MAX, "none that a step leads to"},
};

enum migrate_stage migrate_stage_of(const struct migrate_register *from,
                                    const struct migrate_register *to)
{
    enum migrate_stage stage = MIGRATE_STAGE_1;
    while (stage < MIGRATE_STAGE_UNHEARD_OF &&
           (stages[stage].from != from->phases || stages[stage].to != to->phases))
        stage++;
    return stage;
}

const char *migrate_stage_word(enum migrate_stage stage)
{
    return stages[stage].word;
}

static const struct migrate_step
    one_to_two = {.words = "1 -> 2: stops admitting phase old, then admits phase new",
                  .closes = MIGRATE_FROM,
                  .closes_to = MIGRATE_BOTH,
                  .gone = MIGRATE_OLD,
                  .foreign = MIGRATE_NEW,
                  .opens_to = MIGRATE_BOTH | MIGRATE_NEW,
                  .takes_floor = true,
                  .leads_to = MIGRATE_STAGE_2},
    two_to_one = {.words = "2 -> 1: stops admitting phase new, then admits phase old",
                  .closes = MIGRATE_TO,
                  .closes_to = MIGRATE_BOTH,
                  .gone = MIGRATE_NEW,
                  .foreign = MIGRATE_OLD,
                  .opens_to = MIGRATE_OLD | MIGRATE_BOTH,
                  .takes_floor = true,
                  .leads_to = MIGRATE_STAGE_1},
    two_to_three = {.words = "2 -> 3: stops admitting phase both, so that `from` can be removed",
                    .closes = MIGRATE_TO,
                    .closes_to = MIGRATE_NEW,
                    .gone = MIGRATE_BOTH,
                    .opens_to = 0,
                    .leads_to = MIGRATE_STAGE_3},
    three_to_two = {.words = "3 -> 2: admits phase both again",
                    .closes = MIGRATE_FROM,
                    .closes_to = MIGRATE_BOTH,
                    .gone = 0,
                    .opens_to = MIGRATE_BOTH | MIGRATE_NEW,
                    .leads_to = MIGRATE_STAGE_2};

/* The register of `to` alone decides, as in the model; but if `from` is open beside an open `to`, `from` is closed first. */
const struct migrate_step *migrate_step_of(const struct migrate_register *from,
                                           const struct migrate_register *to, bool forward)
{
    bool old = (from->phases & MIGRATE_OLD) != 0, both = (to->phases & MIGRATE_BOTH) != 0,
         new = (to->phases & MIGRATE_NEW) != 0;
    if (migrate_stage_of(from, to) == (forward ? MIGRATE_STAGE_3 : MIGRATE_STAGE_1))
        return NULL;
    if (forward)
        return !new || old ? &one_to_two : &two_to_three;
    return new && !both && !old ? &three_to_two : &two_to_one;
}

/* If a `to` register admits nobody, a migration that goes on from this side has closed it: no step of its own migration writes
 * {}. If a `from` register admits nobody, its migration is at its last stage, or a step back of the migration whose `to` this
 * side is has closed it. */
bool migrate_other_is_in_the_way(enum migrate_side side, const struct migrate_register *own,
                                 const struct migrate_register *other)
{
    if (side == MIGRATE_FROM)
        return (other->phases & MIGRATE_BOTH) != 0;
    return other->phases != 0 ? (other->phases & MIGRATE_OLD) == 0 : own->phases == 0;
}

uint64_t migrate_floor_after(const uint64_t tokens[2], const uint64_t floors[2])
{
    uint64_t highest = 0;
    for (unsigned side = 0; side < 2; side++) {
        highest = tokens[side] > highest ? tokens[side] : highest;
        highest = floors[side] > highest ? floors[side] : highest;
    }
    return highest > UINT64_MAX - MIGRATE_FLOOR_LEAD_US ? UINT64_MAX
                                                        : highest + MIGRATE_FLOOR_LEAD_US;
}
