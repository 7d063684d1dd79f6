/* hello.c - acquires a lock, checks that it still holds it, and releases it. argv[1]: a config file or a URL such as
 * sqlite:/home/ann/locks.db; without it, the default config file. */
#include <mortise/mortise.h>

#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    mortise_client *client;
    mortise_lease *lease;
    mortise_error error;

    if (mortise_open(argc > 1 ? argv[1] : NULL, &client, &error) != MORTISE_OK) {
        fprintf(stderr, "hello: %s\n", error.message);
        return 1;
    }
    if (mortise_acquire(client, "greeting", MORTISE_OPTIONS(.wait_ms = 5000), &lease, &error) !=
        MORTISE_OK) {
        fprintf(stderr, "hello: %s\n", error.message);
        mortise_close(client, NULL);
        return 1;
    }

    if (mortise_state(lease) != MORTISE_STATE_LOST) /* before each step that cannot be undone */
        printf("hello, alone; my token is %" PRIu64 "\n", mortise_token(lease));

    mortise_status status = mortise_release(lease, &error);
    if (status != MORTISE_OK)
        fprintf(stderr, "hello: %s\n", error.message);
    mortise_close(client, NULL);
    return status == MORTISE_OK ? 0 : 1;
}
