/* folder.c - temporary directories and small files of tests, and the one way to skip. */
#include "support.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool test_folder_make(char *path, size_t size)
{
    const char *below = getenv("TMPDIR");
    int length = snprintf(path, size, "%s/mortise-test-XXXXXX", below && *below ? below : "/tmp");
    return length > 0 && (size_t)length < size && mkdtemp(path);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

void test_folder_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

bool test_file_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    size_t length = strlen(text);
    bool written = write(fd, text, length) == (ssize_t)length;
    return close(fd) == 0 && written;
}

char *test_file_read(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t room = 0;
    if (!file)
        return NULL;
    ssize_t length = getdelim(&text, &room, '\0', file);
    fclose(file);
    if (length >= 0)
        return text;
    free(text); /* empty, or unreadable */
    return calloc(1, 1);
}

int test_skip(const char *what, const char *why)
{
    const char *require = getenv("MORTISE_REQUIRE_ALL");
    bool required = require && strcmp(require, "1") == 0;
    fprintf(stderr, "%s: %s: %s\n", required ? "FAIL (nothing may be skipped)" : "SKIP", what, why);
    return required ? 1 : TEST_SKIP_CODE;
}
