/* stream_tests.c - calls that cannot be started, because there is no memory. This program has functions of its own
 * in place of two of libnghttp2: the driver's, too. */
#include "stage.h"

#include <dlfcn.h>
#include <limits.h>
#include <nghttp2/nghttp2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The driver's newest connection: middle.c makes its own ones with another function. */
static _Atomic(nghttp2_session *) newest;
static atomic_int passes = INT_MAX; /* after so many calls there is no memory for one */

static void real(const char *name, void *function, size_t size)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, size);
}

__attribute__((visibility("default"))) int
nghttp2_session_client_new2(nghttp2_session **session, const nghttp2_session_callbacks *callbacks,
                            void *user, const nghttp2_option *option)
{
    int (*make)(nghttp2_session **, const nghttp2_session_callbacks *, void *,
                const nghttp2_option *);
    real("nghttp2_session_client_new2", &make, sizeof make);
    int error = make(session, callbacks, user, option);
    if (error == 0)
        atomic_store(&newest, *session);
    return error;
}

__attribute__((visibility("default"))) int32_t
nghttp2_submit_request(nghttp2_session *session, const nghttp2_priority_spec *priority,
                       const nghttp2_nv *headers, size_t count, const nghttp2_data_provider *data,
                       void *user)
{
    int32_t (*submit)(nghttp2_session *, const nghttp2_priority_spec *, const nghttp2_nv *, size_t,
                      const nghttp2_data_provider *, void *);
    real("nghttp2_submit_request", &submit, sizeof submit);
    if (session == atomic_load(&newest)) {
        if (atomic_load(&passes) != INT_MAX && atomic_fetch_sub(&passes, 1) <= 0)
            return NGHTTP2_ERR_NOMEM;
    }
    return submit(session, priority, headers, count, data, user);
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* There is no memory for the write of a query, which fails and is gone with that. */
static void test_no_memory(void)
{
    uint64_t version = 0;
    const char *name = fresh_name();
    mortise_client *client = client_direct("ttl=30s");
    mortise_lease *lease = take(client, name);
    atomic_store(&passes, 0);
    EXPECT(NOMEM, mortise_record_write(client, name, "1", 1, &version, &detail));
    atomic_store(&passes, 1); /* the read of the holders */
    EXPECT(NOMEM, mortise_break(client, name, mortise_token(lease), &detail));
    atomic_store(&passes, INT_MAX);
    EXPECT(OK, mortise_record_write(client, name, "1", 1, &version, &detail));
    SAFE(mortise_state(lease) != MORTISE_STATE_LOST);
    give_back(lease);
    client_end(client);
}

const CU_TestInfo stream_tests[] = {
    {"no memory for a write", test_no_memory},
    CU_TEST_INFO_NULL,
};
