/* connect.c - opens the client of a command. */
#include "connect.h"

#include "exit_code.h"
#include "output.h"

#include <stddef.h>

const char *config_where;

mortise_client *open_client(int *code)
{
    mortise_client *client;
    mortise_error error;
    mortise_status status = mortise_open(config_where, &client, &error);

    if (status == MORTISE_OK)
        return client;
    say_error(&error);
    *code = exit_code_of(status);
    return NULL;
}
