/* test_redis_errors.c - error replies of Redis, in the words of its versions: each means the same to a caller. */
#include "link.h"
#include "suite.h"

#include <stdio.h>
#include <string.h>

#define BEFORE_7 "ERR Error running script (call to f_8ead0f68893988e15c455c0b6c8ab9982e2e707c): "
#define FROM_7 " script: 8ead0f68893988e15c455c0b6c8ab9982e2e707c, on @user_script:1."

static const struct {
    const char *text;
    enum link_error error;
} replies[] = {
    /* a script that met a key of another node, or a cluster that went down */
    {BEFORE_7
     "@user_script:1: @user_script: 1: Lua script attempted to access a non local key in a "
     "cluster node ",
     LINK_ERROR_SPLIT}, /* 5.0, 6.2 */
    {BEFORE_7
     "@user_script:1: @user_script: 1: Lua script attempted to execute a command while the "
     "cluster is down ",
     LINK_ERROR_SPLIT}, /* 6.2 */
    {"ERR Script attempted to access a non local key in a cluster node" FROM_7,
     LINK_ERROR_SPLIT}, /* 7.0, Valkey 8 */
    {"ERR Script attempted to execute a command while the cluster is down" FROM_7,
     LINK_ERROR_SPLIT},
    /* an error of a command inside a script */
    {BEFORE_7 "@user_script:3: @user_script: 3: -OOM command not allowed when used memory > "
              "'maxmemory'. ",
     LINK_ERROR_OOM},
    {"OOM command not allowed when used memory > 'maxmemory'." FROM_7, LINK_ERROR_OOM},
    {"WRONGTYPE Operation against a key holding the wrong kind of value" FROM_7,
     LINK_ERROR_WRONGTYPE},
    {"ERR The user executing the script can't access at least one of the keys mentioned in the "
     "command" FROM_7,
     LINK_ERROR_NOPERM},
    {"ERR ACL failure in script: User poor has no permissions to run the 'zadd' command" FROM_7,
     LINK_ERROR_NOPERM}, /* 7.2 */
    /* of the request itself */
    {"NOSCRIPT No matching script. Please use EVAL.", LINK_ERROR_NOSCRIPT},
    {"MOVED 866 127.0.0.1:6381", LINK_ERROR_MOVED},
    {"ASK 866 127.0.0.1:6381", LINK_ERROR_ASK},
    {"ASKED for something", LINK_ERROR_OTHER},
    {"TRYAGAIN Multiple keys request during rehashing of slot", LINK_ERROR_TRYAGAIN},
    {"CLUSTERDOWN Hash slot not served", LINK_ERROR_DOWN},
    {"CROSSSLOT Keys in request don't hash to the same slot", LINK_ERROR_CROSSSLOT},
    {"ERR unknown command 'ROLE', with args beginning with: ", LINK_ERROR_UNKNOWN},
    {"ERR attempted to do something", LINK_ERROR_OTHER},
    {"", LINK_ERROR_OTHER},
};

static void test_words(void)
{
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        enum link_error error = link_error_of(replies[i].text, strlen(replies[i].text));
        if (error != replies[i].error)
            fprintf(stderr, "  %d in place of %d: %s\n", error, replies[i].error, replies[i].text);
        CU_ASSERT_EQUAL(error, replies[i].error);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the words of several versions", test_words},
        CU_TEST_INFO_NULL,
    };
    return suite_run("redis_errors", tests);
}
