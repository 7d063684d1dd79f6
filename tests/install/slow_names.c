/* slow_names.c - loaded with LD_PRELOAD: a resolver that never answers. Each look-up of a name appends a byte to
 * $MORTISE_LOOK_UPS. */
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *port, const struct addrinfo *hints,
                struct addrinfo **found)
{
    (void)node, (void)port, (void)found;
    if ((hints->ai_flags & AI_NUMERICHOST) != 0)
        return EAI_NONAME;
    int fd = open(getenv("MORTISE_LOOK_UPS"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1)
        return EAI_FAIL;
    close(fd);
    for (;;)
        pause();
}
