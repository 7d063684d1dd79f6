/* connect.c - opens the client of a command. */
#include "connect.h"

#include "exit_code.h"
#include "output.h"

#include <mortise/witness.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *config_where;

static mortise_client *opened(mortise_status status, mortise_client *client,
                              const mortise_error *error, int *code)
{
    if (status == MORTISE_OK)
        return client;
    say_error(error);
    *code = exit_code_of(status);
    return NULL;
}

mortise_client *open_client(int *code)
{
    mortise_client *client;
    mortise_error error;
    mortise_status status = mortise_open(config_where, &client, &error);
    return opened(status, client, &error, code);
}

/* A URL with an authority or a query may have a password there. So may a mistyped URL ("redis//user:password@host"), and a
 * connection string that only libpq understands ("host=db password=…"). */
void config_unopened(const char **driver, const char **where)
{
    static char scheme[64];
    const char *named = config_where != NULL ? config_where : secure_getenv("MORTISE_CONFIG");

    named = named != NULL ? named : "";
    const size_t length = strspn(named, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    const bool is_url = length > 0 && named[length] == ':';
    snprintf(scheme, sizeof scheme, "%.*s", is_url ? (int)length : 0, named);
    *driver = scheme;
    const bool is_shown = strpbrk(named, "@?") == NULL && strstr(named, "//") == NULL &&
                          named[strcspn(named, "/=")] != '=';
    *where = is_shown ? named : scheme;
}

mortise_client *open_witnessed_client(int socket, int *code)
{
    mortise_client *client;
    mortise_error error;
    mortise_status status = mortise_open_witnessed(config_where, socket, &client, &error);
    return opened(status, client, &error, code);
}
