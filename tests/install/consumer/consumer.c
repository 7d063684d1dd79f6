/* consumer.c - the smallest program that shows an installed library, its headers and a driver working together: it
 * acquires a lock and prints "held" and the driver's file. argv[1]: the config. */
#include <mortise/mortise.h>

#include <stdio.h>

static int fail(const mortise_error *error)
{
    fprintf(stderr, "consumer: %s\n", error->message);
    return 1;
}

int main(int argc, char **argv)
{
    mortise_client *client;
    mortise_lease *lease;
    mortise_error error;
    mortise_module_info driver = {.size = sizeof(driver)};

    if (mortise_open(argc > 1 ? argv[1] : NULL, &client, &error) != MORTISE_OK)
        return fail(&error);
    if (mortise_acquire(client, "consumer", MORTISE_OPTIONS(.wait_ms = 0), &lease, &error) !=
        MORTISE_OK)
        return fail(&error);
    if (mortise_module_at(client, 0, &driver))
        printf("held %s\n", driver.path);
    if (mortise_release(lease, &error) != MORTISE_OK)
        return fail(&error);
    return mortise_close(client, &error) == MORTISE_OK ? 0 : fail(&error);
}
