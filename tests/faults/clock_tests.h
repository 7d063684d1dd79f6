/* clock_tests.h - the server's clock is set, and claims that end in the database: for test_mysql_rows.c and test_postgres.c,
 * which include it after the header of their server. The server has `faketime=yes`. */
#ifndef MORTISE_TESTS_CLOCK_TESTS_H
#define MORTISE_TESTS_CLOCK_TESTS_H

static void set_clock(const char *offset)
{
    char path[300], new_path[320];
    snprintf(path, sizeof path, "%s/faketime", folder);
    snprintf(new_path, sizeof new_path, "%s.new", path); /* it is read at any time: never empty */
    CU_ASSERT_FATAL(test_file_write(new_path, offset) && chmod(new_path, 0644) == 0 &&
                    rename(new_path, path) == 0);
}

static bool clock_has_lost(void *lease)
{
    return mortise_state(lease) == MORTISE_STATE_LOST;
}

/* Forward: claims end early, the next renewal of each holder finds that out, and the next holder has a larger token. Back:
 * tokens grow nevertheless. */
static void test_clock(void)
{
    mortise_client *client = open_client("renew_every = 100ms", ""), *other = open_client("", "");
    mortise_lease *lease = take(client, "clock", 60000);
    uint64_t token = mortise_token(lease);
    set_clock("+1h\n");
    mortise_lease *next = take(other, "clock", HOLD_MS);
    CU_ASSERT(mortise_token(next) > token + UINT64_C(3500000000));
    token = mortise_token(next);
    CU_ASSERT(test_poll(clock_has_lost, lease, PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_release(lease, &detail), MORTISE_LOST);
    give(next);
    set_clock("-1h\n");
    lease = take(client, "clock", 30000);
    CU_ASSERT(mortise_token(lease) > token);
    give(lease);
    set_clock("+0\n");
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

/* The claim ended in the database by this statement, for the name `expired`, and another client had it: the release of its
 * holder says so (Spring#9291), and nothing of it is left in this process (Spring#1888). */
static void is_expired_by(const char *sql)
{
    mortise_client *client = open_client("", ""), *other = open_client("", "");
    mortise_lease *lease = take(client, "expired", HOLD_MS);
    uint64_t token = mortise_token(lease);
    ask(sql);
    mortise_lease *next = take(other, "expired", HOLD_MS);
    CU_ASSERT(mortise_token(next) > token);
    CU_ASSERT_EQUAL(mortise_release(lease, &detail), MORTISE_LOST);
    CU_ASSERT_EQUAL(try_for(client, "expired", 0), MORTISE_BUSY);
    give(next);
    CU_ASSERT_EQUAL(try_for(client, "expired", 0), MORTISE_OK);
    mortise_close(client, NULL);
    mortise_close(other, NULL);
}

#endif
