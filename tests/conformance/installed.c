/* installed.c - finds the taker by its place relative to the suite's own file, so that an installation can be moved.
 * Knows no subject. */
#include "conformance.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *installed_taker(void)
{
    static char path[4096];
    char self[2048];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || (size_t)length >= sizeof self - 1)
        return NULL;
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(path, sizeof path, "%s/" CONFORMANCE_TAKER, self);
    return access(path, X_OK) == 0 ? path : NULL;
}
