/* settings.h - settings that the drivers share; see settings.c. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_SETTINGS_H
#define MORTISE_DRIVERS_LIB_REDIS_SETTINGS_H

#include "link.h"

/* Rows of the schema that the drivers share; each driver has its own enum of OPTION_…. */
#define SETTINGS_USERNAME_ROW                                                                      \
    [OPTION_USERNAME] = {.key = "username",                                                        \
                         .type = MORTISE_OPTION_TEXT,                                              \
                         .flags = MORTISE_OPTION_URL_USER,                                         \
                         .help = "an ACL user (Redis 6 and later); without it, the default user"}
#define SETTINGS_DATABASE_ROW                                                                      \
    [OPTION_DATABASE] = {.key = "database",                                                        \
                         .type = MORTISE_OPTION_INT,                                               \
                         .flags = MORTISE_OPTION_URL_PATH,                                         \
                         .default_text = "0",                                                      \
                         .minimum = 0,                                                             \
                         .maximum = 1000000,                                                       \
                         .help = "the number of the database"}
#define SETTINGS_TLS_FILE_ROWS                                                                     \
    [OPTION_TLS_CA] = {.key = "tls_ca",                                                            \
                       .type = MORTISE_OPTION_TEXT,                                                \
                       .help = "a file of trusted certificates; without it, the system's"},        \
    [OPTION_TLS_CERT] = {.key = "tls_cert",                                                        \
                         .type = MORTISE_OPTION_TEXT,                                              \
                         .help = "the client's own certificate, a file; needs tls_key"},           \
    [OPTION_TLS_KEY] = {                                                                           \
        .key = "tls_key", .type = MORTISE_OPTION_TEXT, .help = "the client's own key, a file"}
#define SETTINGS_FOREIGN_ROW                                                                       \
    [OPTION_FOREIGN] = {.key = "foreign",                                                          \
                        .type = MORTISE_OPTION_CHOICE,                                             \
                        .default_text = "none",                                                    \
                        .choices = "none|poll",                                                    \
                        .help = "poll: other clients use the same locks and publish no release, "  \
                                "so waiters also ask every `retry`"}

/* Fills an error; returns the status. */
mortise_status settings_explain(mortise_error *error, mortise_status status, const char *format,
                                ...) __attribute__((format(printf, 3, 4)));
/* Makes the name that CLIENT LIST shows from the note "host\npid\nprogram". */
void settings_name_client(struct link_settings *settings, const char *note);
/* Checks that user, password and TLS of this section fit together, and that this build has TLS if it is asked for. */
mortise_status settings_check(const struct link_settings *settings, const char *section,
                              mortise_error *error);
/* Logs what of them has no effect: who wrote it may believe that nobody can read along. */
void settings_warn(const struct link_settings *settings, mortise_host *host);

#endif
