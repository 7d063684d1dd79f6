/* connect.h - the client of a command, and the config that it opens. */
#ifndef MORTISE_TOOLS_CONNECT_H
#define MORTISE_TOOLS_CONNECT_H

#include <mortise/mortise.h>

/* The config that -C named, or NULL, as mortise_open() takes it. option_common() sets it. */
extern const char *config_where;
/* Opens config_where. On failure prints the reason, sets *code to the exit code and returns NULL. */
mortise_client *open_client(int *code);
/* Returns what open_client() would open, as far as it is known without a client and is no secret. driver: the scheme of a URL,
 * or "". where: the path, or the URL if it has only a path, or "". The texts are valid until the next call. */
void config_unopened(const char **driver, const char **where);
/* Like open_client(), but the witness is at the other end of this socket. */
mortise_client *open_witnessed_client(int socket, int *code);

#endif
