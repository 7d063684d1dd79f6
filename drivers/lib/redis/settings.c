/* settings.c - settings that the drivers share. */
#include "settings.h"

#include <stdarg.h>
#include <stdio.h>

mortise_status settings_explain(mortise_error *error, mortise_status status, const char *format,
                                ...)
{
    va_list arguments;
    va_start(arguments, format);
    error->status = status;
    error->native = 0;
    error->retryable = false;
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return status;
}

/* "mortise:host:pid:program"; CLIENT SETNAME forbids blanks. */
void settings_name_client(struct link_settings *settings, const char *note)
{
    char *name = settings->client_name;
    size_t size = sizeof(settings->client_name);
    int length = snprintf(name, size, "mortise:%s", note);
    for (int i = 0; i < length && (size_t)i < size - 1; i++)
        if (name[i] == '\n')
            name[i] = ':';
        else if (name[i] <= ' ' || name[i] > '~')
            name[i] = '_';
}

mortise_status settings_check(const struct link_settings *settings, const char *section,
                              mortise_error *error)
{
    if (settings->username != NULL && settings->password == NULL)
        return settings_explain(error, MORTISE_CONFIG, "[%s] username needs a password", section);
    if ((settings->tls_cert == NULL) != (settings->tls_key == NULL))
        return settings_explain(error, MORTISE_CONFIG, "[%s] tls_cert and tls_key need each other",
                                section);
    const char *problem = link_tls_problem(settings);
    return problem == NULL
               ? MORTISE_OK
               : settings_explain(error, MORTISE_CONFIG, "[%s] tls: %s", section, problem);
}

void settings_warn(const struct link_settings *settings, mortise_host *host)
{
    if (!settings->tls && (settings->tls_ca != NULL || settings->tls_cert != NULL))
        host->log(host, 4,
                  "connections are not encrypted: tls_ca, tls_cert and tls_key do nothing without "
                  "tls = yes");
}
