/* core_options.c - the rows of the core's own config section, [mortise]. Data only.
 *
 * mortise_open() checks what depends on several of them, or on modules (renew_every below ttl, the
 * words of require, the sections of observe). */
#include "config/config.h"

#ifndef MORTISE_DEFAULT_DRIVER
#error "MORTISE_DEFAULT_DRIVER names the driver that is used without any configuration"
#endif

#define HOUR_MS INT64_C(3600000)

const mortise_option core_options[CORE_OPTION_COUNT] = {
    [CORE_DRIVER] = {.key = "driver",
                     .type = MORTISE_OPTION_TEXT,
                     .default_text = MORTISE_DEFAULT_DRIVER,
                     .help =
                         "the module at the top of the stack, as NAME or NAME:INSTANCE; it reads "
                         "the section of the same name"},
    [CORE_TTL] = {.key = "ttl",
                  .type = MORTISE_OPTION_DURATION,
                  .default_text = "30s",
                  .minimum = MORTISE_TTL_MIN_MS,
                  .maximum = MORTISE_TTL_MAX_MS,
                  .help = "how long a crashed holder blocks others"},
    [CORE_RENEW_EVERY] = {.key = "renew_every",
                          .type = MORTISE_OPTION_DURATION,
                          .minimum = 10,
                          .maximum = MORTISE_TTL_MAX_MS / 3,
                          .help = "how often leases are renewed, at most a third of the ttl; "
                                  "without it, every third of it"},
    [CORE_WAIT] = {.key = "wait",
                   .type = MORTISE_OPTION_DURATION,
                   .default_text = "forever",
                   .minimum = 0,
                   .maximum = MORTISE_WAIT_MAX_MS,
                   .choices = "forever",
                   .help = "how long an acquire waits if the call gives no time; 0 tries once"},
    [CORE_NAMESPACE] = {.key = "namespace",
                        .type = MORTISE_OPTION_TEXT,
                        .help =
                            "prefix of every name in the backend; without it, the driver's own"},
    [CORE_HANDOVER_WINDOW] = {.key = "handover_window",
                              .type = MORTISE_OPTION_DURATION,
                              .default_text = "25ms",
                              .minimum = 0,
                              .maximum = HOUR_MS,
                              .help = "how old a claim may be to be handed over to the next waiter "
                                      "of this process"},
    [CORE_HANDOVER_MAX] = {.key = "handover_max",
                           .type = MORTISE_OPTION_INT,
                           .default_text = "64",
                           .minimum = 0,
                           .maximum = 1000000,
                           .help =
                               "how often one claim is handed over; 0 keeps strict order between "
                               "processes"},
    [CORE_UNREACHABLE_TIMEOUT] =
        {.key = "unreachable_timeout",
         .type = MORTISE_OPTION_DURATION,
         .default_text = "10s",
         .minimum = 100, /* with less, a backend behind a network has no time to answer at all */
         .maximum = 24 * HOUR_MS,
         .help = "how long a call waits for an unreachable backend before it fails"},
    [CORE_CLOSE_TIMEOUT] = {.key = "close_timeout",
                            .type = MORTISE_OPTION_DURATION,
                            .default_text = "5s",
                            .minimum = 0,
                            .maximum = HOUR_MS,
                            .help = "how long closing waits for releases and callbacks"},
    [CORE_REQUIRE] = {.key = "require",
                      .type = MORTISE_OPTION_TEXT,
                      .help = "capabilities that a client needs to open, as a list, for example: "
                              "fencing, durable"},
    [CORE_OBSERVE] = {.key = "observe",
                      .type = MORTISE_OPTION_TEXT,
                      .help = "observer modules that get every event, as a list of sections"},
    [CORE_MODULE_PATH] =
        {.key = "module_path",
         .type = MORTISE_OPTION_TEXT,
         .help = "absolute directories, separated by ':', that are searched for modules "
                 "before the built-in one"},
    [CORE_LOG] = {.key = "log",
                  .type = MORTISE_OPTION_CHOICE,
                  .default_text = "stderr",
                  .choices = "stderr|none",
                  .help = "where the library and its modules write log lines"},
    [CORE_WITNESS] = {.key = "witness",
                      .type = MORTISE_OPTION_TEXT,
                      .default_text = "auto",
                      .help = "the process that releases the locks of this one if it crashes "
                              "(mortise witness): auto (if it listens), required, off, or the "
                              "absolute path of its socket"},
    [CORE_CRASH_DELAY] = {.key = "crash_delay",
                          .type = MORTISE_OPTION_DURATION,
                          .default_text = "0",
                          .minimum = 0,
                          .maximum = HOUR_MS,
                          .help = "how long a witness waits after a crash before it releases, for "
                                  "storage that cannot check tokens"},
};
