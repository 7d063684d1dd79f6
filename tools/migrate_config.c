/* migrate_config.c - reads what a config file says about a migration, and rewrites its phase.
 *
 * The library says what a config means, but not where in the file a value is. So this file reads the lines as the core
 * does (sections, "key = value" or "key: value", comments, lists that go on in an indented line). The library reports
 * any other mistake in the file when it opens it. */
#include "migrate.h"

#include "connect.h"
#include "duration.h"
#include "exit_code.h"
#include "output.h"
#include "text.h"

#include <mortise/witness.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MODULE "migrate"
#define PRESENCE_MS 30000 /* the plugin's default */
#define FILE_SIZE_MAX ((size_t)1024 * 1024)
#define ATTRIBUTE_MAX 65536 /* bytes: the kernel's limit, for all names as for one value */
#define ACL "system.posix_acl_access"

/* ---- The file as bytes ------------------------------------------------------------------------ */

static int file_failed(const char *path, const char *doing)
{
    char shown[QUOTED_SIZE];

    say("%s %s: %s", quoted(path, shown, sizeof shown), doing, strerror(errno));
    return EXIT_BAD_CONFIG;
}

/* All of a file, with a NUL behind it, for free(); NULL with errno set. */
static char *read_all(const char *path, size_t *size)
{
    FILE *in = fopen(path, "re");
    char *text = in == NULL ? NULL : must_have(malloc(FILE_SIZE_MAX + 2));

    if (in == NULL)
        return NULL;
    *size = fread(text, 1, FILE_SIZE_MAX + 1, in);
    int code = ferror(in) ? errno : *size > FILE_SIZE_MAX ? EFBIG : 0;
    fclose(in);
    text[code == 0 ? *size : 0] = '\0';
    if (code == 0)
        return text;
    free(text);
    errno = code;
    return NULL;
}

/* ---- Lines ------------------------------------------------------------------------------------- */

struct piece {
    const char *at;
    size_t length;
};

struct scan {
    const char *at, *end;
    struct piece section;
    bool open; /* the value ended in a comma: an indented line belongs to it */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct piece trimmed(const char *from, const char *to)
{
    while (from < to && is_blank(*from))
        from++;
    while (from < to && is_blank(to[-1]))
        to--;
    return (struct piece){from, (size_t)(to - from)};
}

static bool is_text(struct piece piece, const char *text)
{
    return piece.length == strlen(text) && memcmp(piece.at, text, piece.length) == 0;
}

/* The value without a comment behind it: a ';' after a blank. */
static struct piece value_of(const char *from, const char *to)
{
    for (const char *at = from; at < to; at++) {
        if (*at == ';' && (at == from || is_blank(at[-1])))
            return trimmed(from, at);
    }
    return trimmed(from, to);
}

static bool ends_in_comma(struct piece value)
{
    return value.length > 0 && value.at[value.length - 1] == ',';
}

/* The next line that is "key = value"; false at the end. */
static bool next_value(struct scan *scan, struct piece *key, struct piece *value)
{
    while (scan->at < scan->end) {
        const char *start = scan->at, *stop = memchr(start, '\n', (size_t)(scan->end - start));
        scan->at = stop == NULL ? scan->end : stop + 1;
        stop = stop == NULL ? scan->end : stop;
        struct piece line = trimmed(start, stop);
        bool indented = line.length > 0 && line.at > start;
        if (line.length > 0 && (line.at[0] == ';' || line.at[0] == '#'))
            continue;
        if (scan->open && indented) {
            scan->open = ends_in_comma(value_of(line.at, line.at + line.length));
            continue;
        }
        scan->open = false;
        const char *end = line.at + line.length;
        if (line.length > 0 && line.at[0] == '[') {
            const char *close = memchr(line.at, ']', line.length);
            scan->section = (struct piece){line.at + 1, close ? (size_t)(close - line.at - 1) : 0};
            continue;
        }
        const char *mark = line.at;
        while (mark < end && *mark != '=' && *mark != ':')
            mark++;
        if (mark == end)
            continue;
        *key = trimmed(line.at, mark);
        *value = value_of(mark + 1, end);
        scan->open = ends_in_comma(*value);
        return true;
    }
    return false;
}

static struct scan scan_begin(const struct migrate_file *file)
{
    const size_t mark = strncmp(file->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    return (struct scan){.at = file->text + mark, .end = file->text + file->size};
}

static bool find_value(const struct migrate_file *file, const char *section, const char *key,
                       struct piece *value)
{
    struct scan scan = scan_begin(file);
    struct piece found;

    while (next_value(&scan, &found, value)) {
        if (is_text(scan.section, section) && is_text(found, key))
            return true;
    }
    return false;
}

/* ---- The section ------------------------------------------------------------------------------- */

static bool copy(struct piece piece, char *to)
{
    if (piece.length == 0 || piece.length >= SECTION_SIZE)
        return false;
    memcpy(to, piece.at, piece.length);
    to[piece.length] = '\0';
    return true;
}

/* migrate, or migrate:NAME */
static bool is_module(struct piece section)
{
    const size_t length = strlen(MODULE);

    return section.length >= length && memcmp(section.at, MODULE, length) == 0 &&
           (section.length == length || section.at[length] == ':');
}

static int no_section(const struct migrate_file *file, const char *why)
{
    char shown[QUOTED_SIZE];

    say("%s: %s", printable(file->path, shown, sizeof shown), why);
    return EXIT_BAD_CONFIG;
}

/* Finds the section that `driver` names, or the only one that has a `phase`. */
static int find_section(struct migrate_file *file)
{
    struct scan scan = scan_begin(file);
    struct piece key, value;

    if (find_value(file, "mortise", "driver", &value) && is_module(value))
        return copy(value, file->section) ? EXIT_DONE : no_section(file, "the driver has no name");
    while (next_value(&scan, &key, &value)) {
        if (!is_module(scan.section) || !is_text(key, "phase"))
            continue;
        if (file->section[0] != '\0')
            return no_section(file,
                              "several sections [" MODULE
                              ":…], and the driver is none of them: choose one with --section");
        if (!copy(scan.section, file->section))
            return no_section(file, "the name of the section [" MODULE ":…] is too long");
    }
    return file->section[0] != '\0'
               ? EXIT_DONE
               : no_section(file,
                            "no section [" MODULE "] with a phase: there is nothing to migrate");
}

static int read_text(const struct migrate_file *file, const char *key, char *to, size_t *at)
{
    struct piece value;
    char shown[QUOTED_SIZE];

    printable(file->path, shown, sizeof shown);
    if (!find_value(file, file->section, key, &value) || value.length == 0) {
        say("%s: [%s] %s is missing", shown, file->section, key);
        return EXIT_BAD_CONFIG;
    }
    if (memchr(value.at, '$', value.length) != NULL || !copy(value, to)) {
        say("%s: [%s] %s must be written in the file itself, not come from elsewhere", shown,
            file->section, key);
        return EXIT_BAD_CONFIG;
    }
    if (at != NULL)
        *at = (size_t)(value.at - file->text);
    return EXIT_DONE;
}

static int read_phase(struct migrate_file *file)
{
    file->phase = migrate_phase_of(file->phase_word);
    return file->phase != 0 ? EXIT_DONE : no_section(file, "the phase is not old, both or new");
}

static int read_presence(struct migrate_file *file)
{
    struct piece value;
    char text[SECTION_SIZE];

    file->presence_ms = PRESENCE_MS;
    if (!find_value(file, file->section, "presence", &value))
        return EXIT_DONE;
    if (copy(value, text) && parse_duration(text, &file->presence_ms))
        return EXIT_DONE;
    return no_section(file, "the presence of the section is not a duration such as 30s");
}

/* The section of FILE#SECTION, where FILE is what the library has read of that. One of another module says nothing about the
 * migration, as `driver` would not. */
static void take_section(struct migrate_file *file, const char *path)
{
    const char *where = config_where != NULL ? config_where : secure_getenv("MORTISE_CONFIG");
    const size_t length = strlen(path);

    if (where == NULL || strncmp(where, path, length) != 0 || where[length] != '#')
        return;
    const char *section = where + length + 1;
    if (is_module((struct piece){section, strlen(section)}))
        snprintf(file->section, sizeof file->section, "%s", section);
}

/* Finds the path that the library reads, with links followed, and the section if that is named with it. If that is no file, it
 * may be a URL with a password, so the message shows what mortise_config_source() returns, which has no secrets. Opened without
 * `require`: the phase in the file need not meet it (migrate_sides.c). */
static int find_path(struct migrate_file *file)
{
    mortise_client *client;
    mortise_error error;
    char shown[QUOTED_SIZE];

    file->path = config_where == NULL ? NULL : realpath(config_where, NULL);
    if (file->path != NULL)
        return EXIT_DONE;
    const mortise_status status = mortise_open_for_dead(config_where, &client, &error);
    if (status != MORTISE_OK) {
        say_error(&error);
        return exit_code_of(status);
    }
    const char *path = mortise_config_source(client);
    file->path = realpath(path, NULL);
    if (file->path == NULL)
        say("migrate needs a config file, but %s is not one: %s", quoted(path, shown, sizeof shown),
            strerror(errno));
    else
        take_section(file, path);
    mortise_close(client, NULL);
    return file->path != NULL ? EXIT_DONE : EXIT_BAD_CONFIG;
}

int migrate_file_read(struct migrate_file *file, const char *section)
{
    *file = (struct migrate_file){0};
    int code = find_path(file);

    if (code == EXIT_DONE && (file->text = read_all(file->path, &file->size)) == NULL)
        code = file_failed(file->path, "cannot be read");
    if (code == EXIT_DONE && section != NULL && file->section[0] != '\0' &&
        strcmp(file->section, section) != 0)
        code = no_section(file, "--section is another section than that behind the '#'");
    else if (code == EXIT_DONE && section != NULL)
        snprintf(file->section, sizeof file->section, "%s", section);
    else if (code == EXIT_DONE && file->section[0] == '\0')
        code = find_section(file);
    if (code == EXIT_DONE)
        code = read_text(file, "from", file->from, NULL);
    if (code == EXIT_DONE)
        code = read_text(file, "to", file->to, NULL);
    if (code == EXIT_DONE)
        code = read_text(file, "phase", file->phase_word, &file->phase_at);
    if (code == EXIT_DONE)
        code = read_phase(file);
    if (code == EXIT_DONE)
        code = read_presence(file);
    if (code == EXIT_DONE && strcmp(file->from, file->to) == 0)
        code = no_section(file, "from and to are the same section");
    return code;
}

void migrate_file_free(struct migrate_file *file)
{
    if (file->text != NULL)
        explicit_bzero(file->text, file->size);
    free(file->text);
    free(file->path);
    *file = (struct migrate_file){0};
}

/* ---- Another phase ------------------------------------------------------------------------------ */

static bool write_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, text, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        text += written;
        size -= (size_t)written;
    }
    return true;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The attribute is a signature or a checksum of the file's bytes, which have changed: the kernel makes a new one. */
static bool is_of_the_bytes(const char *name)
{
    return strcmp(name, "security.ima") == 0 || strcmp(name, "security.evm") == 0;
}

/* Attributes that file systems and the system's own programs keep for themselves (trusted, btrfs, ceph, …) may be read-only, and
 * do not decide who may read the file. They need not be kept. */
static bool must_keep(const char *name)
{
    return begins(name, "system.") || begins(name, "security.") || begins(name, "user.");
}

static bool copy_attribute(int to, int from, const char *name, char *value, char *there)
{
    ssize_t size = fgetxattr(from, name, value, ATTRIBUTE_MAX);

    if (size < 0)
        return errno == ENODATA || !must_keep(name);
    if (fgetxattr(to, name, there, ATTRIBUTE_MAX) == size &&
        memcmp(value, there, (size_t)size) == 0)
        return true; /* for example a label that both got from the folder; only root may set it */
    return fsetxattr(to, name, value, (size_t)size, 0) == 0 || !must_keep(name);
}

static bool copy_attributes_with(int to, int from, char *names, char *value, char *there)
{
    ssize_t size = flistxattr(from, names, ATTRIBUTE_MAX);
    bool has_acl = false;

    if (size < 0)
        return errno == ENOTSUP;
    for (const char *name = names; name < names + size; name += strlen(name) + 1) {
        has_acl |= strcmp(name, ACL) == 0;
        if (!is_of_the_bytes(name) && !copy_attribute(to, from, name, value, there))
            return false;
    }
    /* the folder may have given the new file an access list that the old one does not have */
    return has_acl || fremovexattr(to, ACL) == 0 || errno == ENODATA || errno == ENOTSUP;
}

/* Copies the access list and the other extended attributes. */
static bool copy_attributes(int to, int from)
{
    char *room = must_have(malloc((size_t)3 * ATTRIBUTE_MAX));
    bool done = copy_attributes_with(to, from, room, room + ATTRIBUTE_MAX,
                                     room + (size_t)2 * ATTRIBUTE_MAX);
    int code = errno;

    free(room);
    errno = code;
    return done;
}

/* Gives the new file the owner, the group, the attributes and the permissions of the old one. The permissions come last, because
 * setting an access list changes them. */
static bool become_like(int fd, const char *path)
{
    struct stat old, new;
    int from = open(path, O_RDONLY | O_CLOEXEC);

    if (from < 0)
        return false;
    bool done = fstat(from, &old) == 0 && fstat(fd, &new) == 0 &&
                ((old.st_uid == new.st_uid &&old.st_gid == new.st_gid) ||
                 fchown(fd, old.st_uid, old.st_gid) == 0) &&
                copy_attributes(fd, from) && fchmod(fd, old.st_mode & 07777) == 0;
    int code = errno;
    close(from);
    errno = code;
    return done;
}

/* Writes the new file, and waits until it is on the disk. */
static bool write_new(int fd, const struct migrate_file *file, const char *phase)
{
    const size_t behind = file->phase_at + strlen(file->phase_word);

    return become_like(fd, file->path) && write_all(fd, file->text, file->phase_at) &&
           write_all(fd, phase, strlen(phase)) &&
           write_all(fd, file->text + behind, file->size - behind) && fsync(fd) == 0;
}

/* Whether the file is still the one that was read. */
static bool is_unchanged(const struct migrate_file *file)
{
    size_t size = 0;
    char *text = read_all(file->path, &size);
    bool same = text != NULL && size == file->size && memcmp(text, file->text, size) == 0;

    free(text);
    return same;
}

static bool sync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');

    snprintf(folder, sizeof folder, "%.*s", slash > path ? (int)(slash - path) : 1, path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return done;
}

int migrate_file_set_phase(const struct migrate_file *file, unsigned phase)
{
    char beside[PATH_MAX + 16];

    snprintf(beside, sizeof beside, "%s.XXXXXX", file->path);
    int fd = mkostemp(beside, O_CLOEXEC);
    if (fd < 0)
        return file_failed(beside, "cannot be created for the new config");
    bool written = write_new(fd, file, migrate_phase_word(phase));
    if (!written)
        file_failed(beside, "cannot become the new config file");
    close(fd);
    if (written && !is_unchanged(file)) {
        say("%s was changed by another program meanwhile, so it was not replaced", file->path);
        written = false;
    } else if (written && rename(beside, file->path) != 0) {
        file_failed(file->path, "cannot be replaced");
        written = false;
    }
    if (!written) {
        unlink(beside);
        return EXIT_BAD_CONFIG;
    }
    return sync_folder(file->path) ? EXIT_DONE : file_failed(file->path, "may not be on the disk");
}
