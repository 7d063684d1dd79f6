/* macros.c - uses the macros of the public headers as applications and modules do. Compiled only, as strict C11: they
 * must not cause warnings in an application. Knows no behaviour. */
#include <mortise/driver.h>
#include <mortise/mortise.h>

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_OBSERVER,
    .name = "nothing",
};

int main(void)
{
    mortise_client *client = NULL;
    mortise_lease *lease = NULL, *inner = NULL;
    mortise_error error;

    if (mortise_open("sqlite:/nowhere", &client, &error) != MORTISE_OK)
        return 1;
    mortise_status status = mortise_acquire(
        client, "outer", MORTISE_OPTIONS(.wait_ms = 5000, .ttl_ms = 1000), &lease, &error);
    if (status != MORTISE_OK)
        return 1;

    /* wait_ms twice, options inside options, options in a value: no warning of these either */
    mortise_options copy = *MORTISE_OPTIONS(
        .ttl_ms = MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER)->wait_ms, .wait_ms = 0);
    if (MORTISE_OPTIONS()->wait_ms != MORTISE_WAIT_DEFAULT || copy.wait_ms != 0)
        return 3;
    MORTISE_WITH (lease) {
        (void)mortise_acquire(client, "inner", MORTISE_OPTIONS(.owner = MORTISE_OWNER_THREAD),
                              &inner, NULL);
        MORTISE_WITH (inner)
            if (mortise_state(inner) == MORTISE_STATE_LOST)
                return 2;
    }
    return mortise_close(client, NULL) == MORTISE_OK ? 0 : 1;
}
