/* witness_ask.h - whether a lock is free at once if its holder crashes. */
#ifndef MORTISE_TOOLS_WITNESS_ASK_H
#define MORTISE_TOOLS_WITNESS_ASK_H

#include <mortise/mortise.h>

/* The path at which the witness of this user listens, unless the witness is given another path. False: there is none. */
bool witness_default_path(char *buffer, size_t size);

enum witnessed { WITNESSED_UNKNOWN, WITNESSED_NO, WITNESSED_YES };

/* Chooses the witness that this client's config names, also if this client cannot use it; if the config names none, that of this
 * user. Either may watch holders with another config. */
void witness_ask_begin(mortise_client *client);
/* Another listing begins: if there was no witness, there may be one now. */
void witness_ask_anew(void);
/* From now on witness_ask() answers "unknown": for a program that runs longer than a witness, and lists thousands of holders. */
void witness_ask_never(void);
/* Unknown: the process is on another host, or belongs to another user. */
enum witnessed witness_ask(const char *host, int64_t pid);

#endif
