/* nearest.h - which word a user probably meant. */
#ifndef MORTISE_TOOLS_NEAREST_H
#define MORTISE_TOOLS_NEAREST_H

#include <stddef.h>

/* The candidate that is most like word; NULL if none is like it. */
const char *nearest(const char *word, const char *const *candidates, size_t count);

#endif
