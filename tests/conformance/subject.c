/* subject.c - what the suite runs on: the descriptor, the config that is made from a template, and the server that a
 * hooks script starts.
 *
 * conformance WHERE [KEY=VALUE …]     (installed: mortise-conformance)
 *   WHERE           the template of a config file, or a URL. @DIR@ is replaced by a temporary directory, @TIMEOUT@ by the
 *                   time to wait for an answer: long, because a machine that stops for seconds must not look like an
 *                   unreachable server
 *   hooks=SCRIPT    called as SCRIPT VERB FOLDER. `start` prints NAME=VALUE lines, which replace @NAME@ in WHERE, and
 *                   may exit 77 to skip; `left` prints what is left in the server, nothing if all is well; `end` ends
 *                   the server: if it fails, so does the suite, and FOLDER is kept. `left` and `end` are called only after
 *                   `start`. "sim": those of the sim driver
 *   can=VERBS       further verbs of the script: restart,freeze,lose
 *   stage3=SECTION  a migration that is complete: its register, in that section's backend, admits phase new
 *   processes=no    other processes do not see the locks
 *   lingers=yes     nobody can know when a request that was sent on a lost connection is done: a close may say so
 *   ttl=MS names=N waiters=N taker=PROGRAM
 *   slack=MS        how late a call may return in the best of several tries
 *   killed=MS       how long the claim of a killed holder lasts (its ttl, if this is not given)
 *   part=K/N        only each N-th test, from the K-th on: N runs do all of them
 *   kept=MS         the ttl of the lease that is held and renewed from the first test on */
#include "conformance.h"

#include "migration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

struct subject subject = {.processes = true,
                          .ttl_ms = 400,
                          .slack_ms = 500,
                          .kept_ms = 3000,
                          .names = 10000,
                          .waiters = 1000};

static const char usage[] =
    "usage: mortise-conformance WHERE [KEY=VALUE ...]\n"
    "Runs the conformance suite on a driver. WHERE is a URL or a config file. In it, @DIR@ is "
    "replaced by\n"
    "a temporary directory, @TIMEOUT@ by the time to wait for an answer, and @NAME@ by the VALUE "
    "that the\n"
    "hook `start` printed as NAME=VALUE.\n"
    "  hooks=SCRIPT   called as SCRIPT VERB DIRECTORY: start (77: skip), left (prints what is "
    "left), end\n"
    "                 (must succeed)\n"
    "  can=VERBS      further verbs of the script: restart (stop, start), freeze (and thaw), lose "
    "(and pass)\n"
    "  processes=no   other processes do not see the locks\n"
    "  lingers=yes    nobody can know when a request that was sent on a lost connection is done\n"
    "  stage3=SECTION before the tests, write the register that admits phase new to that section's "
    "backend\n"
    "  ttl=MS names=N waiters=N      the ttl of leases that must expire, and the sizes of crowds\n"
    "  slack=MS       how late a call may return in the best of several tries\n"
    "  killed=MS      how long the claim of a killed holder lasts, if that is not its ttl\n"
    "  kept=MS        the ttl of the lease that is held and renewed from the first test on\n"
    "  only=TEXT      run only tests whose name contains TEXT\n"
    "  part=K/N       run each N-th of these tests, from the K-th on: N runs do all of them\n"
    "  taker=PROGRAM  the second process of the tests, if it is not where it was installed\n";

static const char *stage3_section;
static char *text; /* of the template, or the URL */
static bool is_url;

/* ---- hooks ------------------------------------------------------------------------------------ */

static bool set_can(const char *words)
{
    static const struct {
        const char *word;
        unsigned bit;
    } verbs[] = {{"restart", HOOK_RESTART}, {"freeze", HOOK_FREEZE}, {"lose", HOOK_LOSE}};
    while (*words) {
        size_t length = strcspn(words, ","), i = 0;
        while (i < 3 && (strlen(verbs[i].word) != length || strncmp(verbs[i].word, words, length)))
            i++;
        if (i == 3)
            return false;
        subject.can |= verbs[i].bit;
        words += length + (words[length] == ',');
    }
    return true;
}

/* Runs the script; its output's lines go to `each`. Returns its exit code, -1 if there is none. */
static int run_script(const char *verb, void (*each)(const char *line))
{
    struct test_process script;
    char line[1024];
    const char *const argv[] = {subject.hooks, verb, subject.folder, NULL};
    if (!test_spawn(&script, argv))
        return -1;
    while (test_hear(&script, line, sizeof line, 4 * TEST_PATIENCE_MS))
        if (each)
            each(line);
    int status = test_reap(&script, 4 * TEST_PATIENCE_MS);
    test_kill(&script);
    return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool subject_hook(const char *verb)
{
    if (!subject.hooks)
        return false;
    if (strcmp(subject.hooks, "sim") == 0)
        return sim_hook(verb);
    return run_script(verb, NULL) == 0;
}

static bool started; /* the hook `start` was called, so the others may be */
static bool something_left;

static void tell_left(const char *line)
{
    fprintf(stderr, "left in the server: %s\n", line);
    something_left = true;
}

/* ---- the config -------------------------------------------------------------------------------- */

/* What was allocated as `in`, with every @key@ replaced. */
static char *replaced(char *in, const char *key, const char *value)
{
    char pattern[128], *place;
    snprintf(pattern, sizeof pattern, "@%s@", key);
    while (in && (place = strstr(in, pattern))) {
        char *longer;
        int length =
            asprintf(&longer, "%.*s%s%s", (int)(place - in), in, value, place + strlen(pattern));
        free(in);
        in = length < 0 ? NULL : longer;
    }
    return in;
}

static void replace(const char *key, const char *value)
{
    text = replaced(text, key, value);
}

static void replace_line(const char *line)
{
    char key[64] = "";
    const char *equals = strchr(line, '=');
    if (equals && (size_t)(equals - line) < sizeof key) {
        memcpy(key, line, (size_t)(equals - line));
        replace(key, equals + 1);
    }
}

static char *patient(char *in, bool hurried)
{
    return replaced(in, "TIMEOUT", hurried ? "1s" : "20s");
}

/* "ttl = 1s\nwait = 2s" as "ttl=1s&wait=2s" behind a URL. */
static char *url_with(const char *settings, bool hurried)
{
    char *url, *to;
    if (asprintf(&url, "%s%c%s", text, strchr(text, '?') ? '&' : '?', settings) < 0)
        return NULL;
    to = url + strlen(text);
    for (const char *from = to; *from; from++)
        if (*from != ' ')
            *to++ = *from == '\n' ? '&' : *from;
    *to = '\0';
    return patient(url, hurried);
}

/* The template with the settings at the head of its [mortise] section, as a file. */
static char *file_with(const char *settings, bool hurried)
{
    static int count;
    static const char section[] = "[mortise]\n";
    char *path = NULL, *whole = NULL;
    const char *place = strstr(text, section);
    place = place ? place + strlen(section) : text;
    if (asprintf(&path, "%s/mortise%d.conf", subject.folder, count++) < 0 ||
        asprintf(&whole, "%.*s%s\n%s", (int)(place - text), text, settings, place) < 0)
        return NULL;
    whole = patient(whole, hurried);
    bool written = whole && test_file_write(path, whole);
    free(whole);
    return written ? path : NULL;
}

/* Patient, too, unless the settings say how long to be; and with a ttl that is longer than the search for what is left. */
static char *make_where(const char *settings)
{
    bool hurried = settings[0] == '!';
    char *whole, *where;
    if (asprintf(&whole, "%s%s%s%s%s",
                 strstr(settings, "unreachable_timeout") ? "" : "unreachable_timeout = 60s\n",
                 strstr(settings, "ttl") || strstr(text, "ttl") ? "" : "ttl = 60s\n",
                 strstr(settings, "close_timeout") ? "" : "close_timeout = 60s",
                 settings[0] ? "\n" : "", settings + hurried) < 0)
        return NULL;
    where = is_url ? url_with(whole, hurried) : file_with(whole, hurried);
    free(whole);
    return where;
}

const char *subject_where(const char *settings)
{
    static struct {
        const char *settings;
        char *where;
    } made[128]; /* freed by nobody: until the end */
    const char *wanted = settings ? settings : "";
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        if (!made[i].where) {
            made[i].settings = strdup(wanted);
            made[i].where = make_where(wanted);
        }
        if (made[i].settings && strcmp(made[i].settings, wanted) == 0)
            return made[i].where;
    }
    return NULL;
}

/* ---- begin and end ---------------------------------------------------------------------------- */

static bool set_number(const char *value, int64_t *number)
{
    char *end;
    *number = strtoll(value, &end, 10);
    return *number > 0 && *end == '\0';
}

static bool set_part(const char *value)
{
    char rest;
    return sscanf(value, "%u/%u%c", &subject.part, &subject.parts, &rest) == 2 &&
           subject.part >= 1 && subject.part <= subject.parts;
}

static bool set_key(const char *key, const char *value)
{
    int64_t number = 0;
    if (strcmp(key, "hooks") == 0)
        subject.hooks = value;
    else if (strcmp(key, "can") == 0)
        return set_can(value);
    else if (strcmp(key, "part") == 0)
        return set_part(value);
    else if (strcmp(key, "taker") == 0)
        subject.taker = value;
    else if (strcmp(key, "stage3") == 0)
        stage3_section = value;
    else if (strcmp(key, "processes") == 0)
        subject.processes = strcmp(value, "no") != 0;
    else if (strcmp(key, "lingers") == 0)
        subject.lingers = strcmp(value, "no") != 0;
    else if (strcmp(key, "ttl") == 0)
        return set_number(value, &subject.ttl_ms);
    else if (strcmp(key, "slack") == 0)
        return set_number(value, &subject.slack_ms);
    else if (strcmp(key, "killed") == 0)
        return set_number(value, &subject.killed_ms);
    else if (strcmp(key, "kept") == 0)
        return set_number(value, &subject.kept_ms);
    else if (!set_number(value, &number) || number > 1000000)
        return false;
    else if (strcmp(key, "names") == 0)
        subject.names = (int)number;
    else if (strcmp(key, "waiters") == 0)
        subject.waiters = (int)number;
    else
        return false;
    return true;
}

static bool set_argument(char *argument)
{
    char *equals = strchr(argument, '=');
    if (!equals)
        return false;
    *equals = '\0';
    bool known = set_key(argument, equals + 1);
    *equals = '=';
    return known;
}

static int start_server(void)
{
    if (!subject.hooks || strcmp(subject.hooks, "sim") == 0)
        return 0;
    started = true;
    int code = run_script("start", replace_line);
    if (code == TEST_SKIP_CODE)
        return test_skip("conformance", "the server cannot be started here");
    return code == 0 ? 0 : 1;
}

/* What `mortise migrate advance` leaves behind when a migration is over; each namespace has its own. */
bool subject_write_stage3(const char *settings)
{
    char text_of_register[MIGRATE_RECORD_SIZE], *where = NULL;
    struct migrate_register reg = {.phases = MIGRATE_NEW};
    mortise_client *client = NULL;
    uint64_t version = 0;
    size_t size = migrate_register_encode(&reg, text_of_register);
    if (!stage3_section)
        return true;
    if (asprintf(&where, "%s#%s", subject_where(settings), stage3_section) < 0)
        return false;
    bool opened = EXPECT(OK, mortise_open(where, &client, &detail));
    mortise_status status = !opened
                                ? MORTISE_CLOSED
                                : mortise_record_write(client, migrate_register_name(MIGRATE_TO),
                                                       text_of_register, size, &version, &detail);
    mortise_close(client, NULL);
    free(where);
    return status == MORTISE_BUSY || EXPECT(OK, status); /* BUSY: it is there */
}

int subject_begin(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        fprintf(argc < 2 ? stderr : stdout, "%s", usage);
        exit(argc < 2 ? 64 : 0);
    }
    for (int i = 2; i < argc; i++)
        if (strncmp(argv[i], "only=", 5) != 0 && !set_argument(argv[i])) {
            fprintf(stderr, "conformance: what is \"%s\"?\n", argv[i]);
            return 64;
        }
    const char *slash = strchr(argv[1], '/'), *colon = strchr(argv[1], ':');
    is_url = colon && (!slash || colon < slash);
    text = is_url ? strdup(argv[1]) : test_file_read(argv[1]);
    if (!text || !test_folder_make(subject.folder, sizeof subject.folder)) {
        fprintf(stderr, "conformance: cannot read %s, or make a folder\n", argv[1]);
        return 1;
    }
    replace("DIR", subject.folder);
    if (!subject.taker)
        subject.taker = installed_taker();
    int code = start_server();
    subject.where = code == 0 ? subject_where(NULL) : NULL;
    if (code == 0 && !subject_write_stage3(NULL))
        code = 1;
    if (code == 0 && EXPECT(OK, mortise_open(subject.where, &subject.looker, &detail)))
        subject.capabilities = mortise_capabilities(subject.looker);
    if (code == 0 && subject.hooks && strcmp(subject.hooks, "sim") == 0 && !sim_hook("find"))
        code = 1;
    return code;
}

bool subject_end(void)
{
    bool ended = true;
    mortise_close(subject.looker, NULL);
    mortise_close(subject.looker, NULL);
    if (subject.hooks && strcmp(subject.hooks, "sim") == 0) {
        something_left = !sim_hook("left");
    } else if (started) {
        something_left = run_script("left", tell_left) != 0 || something_left;
        ended = run_script("end", NULL) == 0;
    }
    if (ended)
        test_folder_remove(subject.folder);
    else
        fprintf(stderr, "the hook \"end\" has failed; kept: %s\n", subject.folder);
    return ended && !something_left;
}
