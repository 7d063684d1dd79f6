/* connect.c - opens the client of a command. */
#include "connect.h"

#include "exit_code.h"
#include "output.h"

#include <mortise/witness.h>

#include <stddef.h>

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

mortise_client *open_witnessed_client(int socket, int *code)
{
    mortise_client *client;
    mortise_error error;
    mortise_status status = mortise_open_witnessed(config_where, socket, &client, &error);
    return opened(status, client, &error, code);
}
