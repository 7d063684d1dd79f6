/* ping.c - the answer of a server to a ping, in two parts: see ping.h. */
#include "ping.h"

#include <stdio.h>
#include <string.h>

mortise_status ping_server(mortise_client *client, char *text, size_t size, char *findings,
                           size_t findings_size, mortise_error *error)
{
    char answer[MORTISE_PING_SIZE] = "";
    const mortise_status status = mortise_ping(client, answer, sizeof answer, error);
    char *risk = strstr(answer, " | risk: "), *note = strstr(answer, " | note: ");
    char *first = risk == NULL || (note != NULL && note < risk) ? note : risk;

    if (findings != NULL)
        snprintf(findings, findings_size, "%s", first != NULL ? first : "");
    if (first != NULL)
        *first = '\0';
    snprintf(text, size, "%s", answer);
    return status;
}

void ping_without_time(char *text)
{
    static const char words[] = "; votes count in ";
    char *begin = strstr(text, words);

    if (begin == NULL)
        return;
    char *end = begin + strlen(words) + strspn(begin + strlen(words), "0123456789 s");
    memmove(begin, end, strlen(end) + 1);
}
