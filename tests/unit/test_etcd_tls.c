/* test_etcd_tls.c - when the files of TLS are read again, and what is said if that fails. */
#include "etcd/tls.h"

#include "suite.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

#define SECOND INT64_C(1000000000)

static const struct tls_settings good, bad = {.ca = "/nowhere/ca.pem"};
static struct tls_context *context;
static char problem[200];

static bool renew(const struct tls_settings *settings, int64_t now_ns)
{
    snprintf(problem, sizeof problem, "what was here before");
    return tls_context_renew(context, settings, now_ns, problem, sizeof problem);
}

static void begin(void)
{
    context = tls_context_new(&good, problem, sizeof problem);
    CU_ASSERT_PTR_NOT_NULL_FATAL(context);
}

/* Those of the system may have hundreds of certificates, and a client may try twenty times a second. */
static void test_rate(void)
{
    begin();
    for (int64_t at = 10; at < 13; at++) {
        CU_ASSERT_TRUE(renew(&good, at * SECOND));
        CU_ASSERT_FALSE(renew(&good, at * SECOND + SECOND / 2));
        CU_ASSERT_STRING_EQUAL(problem, "");
    }
    tls_context_free(context);
}

/* Each time that they cannot be read after they could. */
static void test_told_once(void)
{
    int64_t at = 10;
    begin();
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_TRUE(renew(&bad, at++ * SECOND));
        CU_ASSERT_PTR_NOT_NULL(strstr(problem, "/nowhere/ca.pem"));
        CU_ASSERT_TRUE(renew(&bad, at++ * SECOND));
        CU_ASSERT_STRING_EQUAL(problem, "");
        CU_ASSERT_TRUE(renew(&good, at++ * SECOND));
        CU_ASSERT_STRING_EQUAL(problem, "");
    }
    tls_context_free(context);
}

static const CU_TestInfo tests[] = {
    {"once a second", test_rate},
    {"what is wrong is said once", test_told_once},
    CU_TEST_INFO_NULL,
};

int main(void)
{
    return suite_run("etcd: TLS", tests);
}
