/* findings.c - what a ping adds about the server's settings, for `mortise doctor`: each finding is " | risk: …" or
 * " | note: …" at the end of the line (driver.h, MORTISE_OP_PING). */
#include "../lib/ping.h"
#include "driver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define US_PER_S 1000000
#define LONG_MS 3600000 /* a failover takes less time */

static bool is(const char *setting, const char *value)
{
    return setting != NULL && strcmp(setting, value) == 0;
}

static bool is_off(const char *setting)
{
    return is(setting, "0") || is(setting, "OFF");
}

static int64_t number(const char *setting)
{
    return setting != NULL ? strtoll(setting, NULL, 10) : 0;
}

/* With `durable = yes` the driver refuses such a server, but it checks that only when a connection is made. */
static void add_durability(const mortise_op *op, const char *const *settings)
{
    const bool flush = is(settings[SETTING_FLUSH], "1"), log = !is_off(settings[SETTING_BINLOG]);
    if (!flush || (log && !is(settings[SETTING_SYNC], "1"))) {
        const char *value = settings[flush ? SETTING_SYNC : SETTING_FLUSH];
        ping_add(op,
                 " | risk: %s is %.10s: after a crash of its machine the server may have forgotten "
                 "grants, and grant them again; set it to 1",
                 flush ? "sync_binlog" : "innodb_flush_log_at_trx_commit",
                 value != NULL ? value : "unknown");
    }
    /* MySQL 8.0.30 and later: InnoDB finds damaged pages, and cannot repair them */
    const bool detects = is(settings[SETTING_DOUBLEWRITE], "DETECT_ONLY");
    if (detects || is_off(settings[SETTING_DOUBLEWRITE]))
        ping_add(op,
                 " | risk: innodb_doublewrite is %s: after a crash of its machine the tables may "
                 "be damaged, and grants forgotten; set it to ON",
                 detects ? "DETECT_ONLY" : "off");
}

static void add_replicas(const mortise_op *op, const char *const *settings, unsigned count)
{
    int64_t replicas = number(settings[SETTING_DUMPS]);
    if (count > SETTING_REPLICAS)
        replicas = number(settings[SETTING_REPLICAS]);
    const bool semi = count > SETTING_REPLICAS && is(settings[SETTING_SEMI_SYNC], "ON");
    if (replicas == 0)
        return;
    if (!semi) {
        ping_add(op,
                 " | %s: %" PRId64
                 " replicas, and commits do not wait for them%s: after a failover a "
                 "held lock may be granted again; use semi-synchronous replication",
                 count > SETTING_REPLICAS ? "risk" : "note", replicas,
                 count > SETTING_REPLICAS ? "" : " unless replication is semi-synchronous");
    } else if (number(settings[SETTING_SEMI_SYNC_MS]) < LONG_MS) {
        ping_add(op,
                 " | note: rpl_semi_sync_master_timeout is %" PRId64
                 " ms: after that time without a replica commits do not wait for one, and after a "
                 "failover a held lock may be granted again; make it longer than any failover",
                 number(settings[SETTING_SEMI_SYNC_MS]));
    }
}

void findings_add(const mortise_op *op, const char *const *settings, unsigned count)
{
    add_durability(op, settings);
    add_replicas(op, settings, count);
    ping_add_clock(op, number(settings[SETTING_CLOCK]) / US_PER_S - (int64_t)time(NULL));
}
