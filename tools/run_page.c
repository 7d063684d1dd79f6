/* run_page.c - `mortise run`: what the keeper passes to the command, for its environment and its terminal. */
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Appends a word to a list that is separated by blanks. */
static void append(char *list, size_t size, const char *word)
{
    const size_t used = strlen(list);

    snprintf(list + used, size - used, "%s%s", used > 0 ? " " : "", word);
}

/* Fills in what the command, and a run inside of it, must know about each lease. */
static void fill_leases(const struct run *run, const char *host, bool migrating)
{
    struct keeper_page *page = run->keeper.page;
    char text[OUTER_HOLDER_SIZE];

    mortise_owner(run->leases[0], page->owner, sizeof page->owner);
    page->token = mortise_token(run->leases[0]);
    for (size_t i = 0; i < run->count; i++) {
        snprintf(text, sizeof text, "%" PRIu64, mortise_token(run->leases[i]));
        append(page->tokens, sizeof page->tokens, text);
        if (i > 0 && mortise_owner(run->leases[i], text, sizeof text) > 0)
            append(page->other_owners, sizeof page->other_owners, text);
        if (!migrating)
            continue;
        run_outer_holder(run->names[i], getpid(), host, text, sizeof text);
        append(page->migrating, sizeof page->migrating, text);
    }
}

void run_fill_page(struct run *run)
{
    struct keeper_page *page = run->keeper.page;
    mortise_module_info info = {.size = sizeof info};
    const char *driver = "";
    char host[sizeof((mortise_info *)0)->host] = "";
    bool migrating = false;

    for (size_t i = 0; mortise_module_at(run->client, i, &info); i++) {
        migrating = migrating || strcmp(info.name, "migrate") == 0;
        if (driver[0] == '\0' && strcmp(info.kind, "driver") == 0)
            driver = info.name;
    }
    snprintf(page->name, sizeof page->name, "%s", run->names[0]);
    snprintf(page->driver, sizeof page->driver, "%s", driver);
    page->warn_only = run->warn_only;
    page->hide_config = run->hide_config;
    gethostname(host, sizeof host - 1);
    fill_leases(run, host, migrating);
    page->foreground = terminal_is_for_command(run);
}
