/* program.c - a program that compiles with the headers of 0.1 and with those of today. It prints one line for each call.
 *
 *     program open WHERE     opens and closes
 *     program use WHERE      acquires, looks, releases
 *
 * It passes no mortise_error: that of 0.1 is smaller. */
#include <mortise/mortise.h>

#include <stdio.h>
#include <string.h>

static void print(const char *call, mortise_status status)
{
    printf("%s %s\n", call, mortise_status_name(status));
}

static bool see(const mortise_info *info, void *user_data)
{
    (void)user_data;
    printf("listed %s %d\n", info->name, info->token > 0);
    return true;
}

static void use(mortise_client *client)
{
    mortise_lease *lease, *none;
    mortise_info info = {.size = sizeof(info)};
    mortise_stats stats = {.size = sizeof(stats)};
    print("acquire", mortise_acquire(client, "a", MORTISE_OPTIONS(.wait_ms = 0), &none, NULL));
    print("release", mortise_release(none, NULL));
    print("acquire without options", mortise_acquire(client, "b", NULL, &lease, NULL));
    print("inspect", mortise_inspect(client, "b", &info, NULL));
    printf("held %d leases %u\n", info.held, (unsigned)info.leases);
    print("list", mortise_list(client, NULL, see, NULL, NULL));
    print("stats", mortise_stats_get(client, &stats));
    printf("acquires %d\n", (int)stats.acquires);
    /* as the program understands it */
    printf("state %s\n", mortise_state(lease) == MORTISE_STATE_LOST ? "LOST" : "HELD");
    print("release", mortise_release(lease, NULL));
    printf("state %s\n", mortise_state(lease) == MORTISE_STATE_LOST ? "LOST" : "HELD");
}

int main(int argc, char **argv)
{
    mortise_client *client;
    if (argc != 3)
        return 2;
    mortise_status status = mortise_open(argv[2], &client, NULL);
    print("open", status);
    if (status != MORTISE_OK)
        return 1;
    if (strcmp(argv[1], "use") == 0)
        use(client);
    print("close", mortise_close(client, NULL));
    return 0;
}
