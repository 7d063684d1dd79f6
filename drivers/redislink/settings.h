/* settings.h - settings that the drivers that speak Redis have in common; see settings.c. */
#ifndef MORTISE_DRIVERS_REDISLINK_SETTINGS_H
#define MORTISE_DRIVERS_REDISLINK_SETTINGS_H

#include "link.h"

/* Fills an error; returns the status. */
mortise_status settings_explain(mortise_error *error, mortise_status status, const char *format,
                                ...) __attribute__((format(printf, 3, 4)));
/* What CLIENT LIST shows, of the note "host\npid\nprogram". */
void settings_name_client(struct link_settings *settings, const char *note);
/* Of the section of this name: who is to log in, and TLS, fit together and this build can do it. */
mortise_status settings_check(const struct link_settings *settings, const char *section,
                              mortise_error *error);

#endif
