/* doctor.c - `mortise doctor`: does what `mortise check` does, and says what the settings of the server and of this host
 * mean for the promises. Takes no lock and changes nothing.
 *
 * The drivers know their servers: the answer to a ping has their findings. This file has what does not depend on a
 * driver. */
#include "check.h"
#include "commands.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "text.h"

#include <mortise/witness.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <unistd.h>

#define SLOW_US 200000
#define TOO_SLOW_US 3000000 /* for the default ttl */

static const char help[] =
    "Usage: mortise doctor [--json]\n"
    "Checks what `mortise check` checks, and then says what the settings of the server and of "
    "this\n"
    "host mean for the promises. Takes no lock and changes nothing. Each line begins with what it\n"
    "is about and one of: ok; note, a promise that this setup does not make; risk, two holders "
    "are\n"
    "possible or locks are lost in some event, and a setting would prevent that; wrong.\n"
    "\n"
    "      --json                print an array of objects: what, level, ok, detail\n"
    "  -C, --config FILE|URL     config file or URL\n"
    "\n"
    "Exit code: 0 no risk, 1 at least one risk, 64 usage, 69 the server does not answer, 78 "
    "config\n"
    "or modules.\n";

/* ---- What the driver says -------------------------------------------------------------------- */

static void show_findings(struct report *report, const char *findings)
{
    static const char separator[] = " | ";
    char detail[1200], shown[1400];
    const char *at = findings;

    if (*at == '\0')
        report_line(report, "settings", LEVEL_OK, "no findings in the server's settings");
    while (*at != '\0') {
        at += strncmp(at, separator, strlen(separator)) == 0 ? strlen(separator) : 0;
        const char *end = strstr(at, separator);
        const size_t length = end != NULL ? (size_t)(end - at) : strlen(at);
        snprintf(detail, sizeof detail, "%.*s", (int)length, at);
        const bool risk = strncmp(detail, "risk: ", 6) == 0;
        const bool note = strncmp(detail, "note: ", 6) == 0;
        report_line(report, "settings", risk ? LEVEL_RISK : LEVEL_NOTE,
                    printable(detail + (risk || note ? 6 : 0), shown, sizeof shown));
        at += length;
    }
}

/* ---- What the stack does not promise ----------------------------------------------------------- */

static void show_promises(struct report *report, mortise_client *client)
{
    static const struct {
        uint32_t capability;
        const char *text;
    } rows[] = {
        {MORTISE_CAP_DURABLE,
         "not durable: after a restart of the server, or a failover, a lock may "
         "be granted while the previous holder is still working"},
        {MORTISE_CAP_FENCING,
         "no fencing: a late write of a former holder cannot be recognised by its "
         "token"},
        {MORTISE_CAP_FAIR,
         "not fair: between processes, a caller that comes later may get the lock "
         "first"},
        {MORTISE_CAP_NOTIFY, "no notify: waiters poll, so they see a release late"},
        {MORTISE_CAP_LIST,
         "no lists: `mortise list`, `mortise watch` and `mortise serve` cannot be used"},
    };
    const uint32_t can = mortise_capabilities(client);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if ((can & rows[i].capability) == 0)
            report_line(report, "promises", LEVEL_NOTE, rows[i].text);
    }
}

/* ---- This host --------------------------------------------------------------------------------- */

static void show_clock(struct report *report)
{
    struct timex clock = {0};
    const int state = adjtimex(&clock);

    if (state < 0)
        report_line(report, "clock", LEVEL_NOTE,
                    "the kernel does not say whether it is synchronised");
    else if (state == TIME_ERROR || (clock.status & STA_UNSYNC) != 0)
        report_line(
            report, "clock", LEVEL_NOTE,
            "this host's clock is not synchronised (NTP): leases count seconds of this host and "
            "do not depend on it, but the times in logs do");
    else
        report_line(report, "clock", LEVEL_OK, "synchronised");
}

static void show_witness(struct report *report, mortise_client *client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[256], detail[400]; /* path: or why there is none */
    const size_t length = mortise_witness_path(client, path, sizeof path);

    if (length == 0 || length >= sizeof address.sun_path) {
        snprintf(detail, sizeof detail,
                 "off: if a holder crashes, others wait until its ttl or session ends. The reason: "
                 "%s",
                 path);
        report_line(report, "witness", LEVEL_NOTE, detail);
        return;
    }
    memcpy(address.sun_path, path, length + 1);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool there = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    report_line(report, "witness", there ? LEVEL_OK : LEVEL_NOTE,
                there
                    ? "runs: the locks of a process that crashes are free at once"
                    : "none runs for this user: if a holder crashes, others wait until its ttl or "
                      "session ends (man mortise-witness)");
}

/* A renewal needs a round trip, and a lease is renewed when a third of its ttl has passed. The time of the first answer
 * includes the connecting; if that was slow, renewals need not be. */
static void show_speed(struct report *report, mortise_client *client, int64_t took_us)
{
    char detail[160];
    mortise_error error;
    const int64_t begin_us = check_now_us();

    if (took_us < SLOW_US)
        return;
    if (mortise_ping(client, detail, sizeof detail, &error) == MORTISE_OK)
        took_us = check_now_us() - begin_us;
    if (took_us < SLOW_US)
        return;
    snprintf(detail, sizeof detail,
             "an answer took %" PRId64 " ms: with a ttl below %" PRId64
             " ms a slow renewal may lose the lock; use a longer ttl",
             took_us / 1000, took_us / 1000 * 10);
    report_line(report, "server", took_us < TOO_SLOW_US ? LEVEL_NOTE : LEVEL_RISK, detail);
}

static void more(struct report *report, mortise_client *client, const char *findings,
                 int64_t took_us)
{
    show_speed(report, client, took_us);
    show_findings(report, findings);
    show_promises(report, client);
    show_witness(report, client);
    show_clock(report);
}

int command_doctor(int argc, char **argv)
{
    struct report report = {.with_level = true};
    return check_command(argc, argv, help, &report, more);
}
