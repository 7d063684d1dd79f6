/* access.c - who may read the page: the token, and the name by which a browser reached this host.
 *
 * The page changes nothing, but it names programs, hosts and locks. On loopback every user of the host may read it. A page
 * of another site must not. Browsers let such a page read only responses under its own host name, but it could make that
 * name point to 127.0.0.1 (DNS rebinding). So on loopback the Host of a request must be an address or "localhost". */
#include "serve.h"

#include "exit_code.h"
#include "output.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKEN_MIN = 16, TOKEN_MAX = sizeof((struct access *)0)->token - 1 };

/* ---- The file -------------------------------------------------------------------------------- */

static bool refuse_file(const char *path, const char *why, int *code)
{
    char shown[QUOTED_SIZE];

    say("serve: token file %.600s: %s", quoted(path, shown, sizeof shown), why);
    *code = EXIT_BAD_CONFIG;
    return false;
}

/* systemd keeps credentials in a directory of its own that nobody else can enter. Their mode may look open, because an
 * access list shows as the mode of the group. */
static bool is_credential(const char *path)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    const size_t length = folder != NULL ? strlen(folder) : 0;

    return length > 1 && strncmp(path, folder, length) == 0 && path[length] == '/' &&
           strchr(path + length + 1, '/') == NULL;
}

static const char *problem_of(int fd, const char *path)
{
    struct stat about;

    if (fstat(fd, &about) != 0)
        return strerror(errno);
    if (!S_ISREG(about.st_mode))
        return "it is not a regular file";
    if (about.st_uid != geteuid() && about.st_uid != 0)
        return "it belongs to another user";
    if ((about.st_mode & 077) != 0 && !is_credential(path))
        return "other users can read it (chmod 600)";
    return NULL;
}

static bool take_token(struct access *access, const char *path, char *text, int *code)
{
    text[strcspn(text, "\r\n")] = '\0';
    const size_t length = strlen(text);
    if (length < TOKEN_MIN || length > TOKEN_MAX)
        return refuse_file(path, "expected one line of 16 to 512 characters", code);
    for (const char *at = text; *at != '\0'; at++) {
        if (*at <= ' ' || *at > '~' || *at == ':')
            return refuse_file(
                path, "the token may have printable ASCII only, without blanks and colons", code);
    }
    memcpy(access->token, text, length + 1);
    return true;
}

bool access_read_token(struct access *access, const char *path, int *code)
{
    char text[TOKEN_MAX + 4] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */

    if (fd < 0)
        return refuse_file(path, strerror(errno), code);
    const char *problem = problem_of(fd, path);
    if (problem == NULL && read(fd, text, sizeof text - 1) < 0)
        problem = strerror(errno);
    close(fd);
    if (problem != NULL)
        return refuse_file(path, problem, code);
    return take_token(access, path, text, code);
}

/* ---- The name -------------------------------------------------------------------------------- */

static bool is_port(const char *text)
{
    return *text == '\0' || (*text == ':' && strspn(text + 1, "0123456789") == strlen(text + 1));
}

/* An address cannot be another site's name. The port may be any: a tunnel has its own. */
static bool is_loopback_name(const char *host)
{
    static const char *const names[] = {"localhost", "[::1]"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strncasecmp(host, names[i], strlen(names[i])) == 0 && is_port(host + strlen(names[i])))
            return true;
    }
    const size_t digits = strspn(host, "0123456789.");
    return strncmp(host, "127.", 4) == 0 && is_port(host + digits);
}

/* ---- The token ------------------------------------------------------------------------------- */

/* The time depends on the given text only. */
static bool is_token(const struct access *access, const char *given, size_t length)
{
    const size_t wanted = strlen(access->token);
    volatile unsigned char difference = length != wanted;

    for (size_t i = 0; i < length; i++)
        difference |= (unsigned char)(given[i] ^ access->token[i % wanted]);
    return difference == 0;
}

/* Decodes base64 and returns the length; 0 if the text is malformed. */
static size_t decode_base64(const char *text, char *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    size_t used = 0;
    int count = 0;

    for (; *text != '\0' && *text != '='; text++) {
        const char *digit = strchr(digits, *text);
        if (digit == NULL || used == size)
            return 0;
        bits = (bits << 6 | (uint32_t)(digit - digits)) & 0xffffff;
        count += 6;
        if (count >= 8) {
            count -= 8;
            bytes[used++] = (char)(bits >> count);
        }
    }
    return used;
}

/* Programs send the token as Bearer; a browser asks for a password and sends it as Basic, behind any user's name. */
static bool is_allowed(const struct access *access, const char *header)
{
    char bytes[1024];

    if (header == NULL)
        return false;
    if (strncasecmp(header, "Bearer ", 7) == 0)
        return is_token(access, header + 7, strlen(header + 7));
    if (strncasecmp(header, "Basic ", 6) != 0)
        return false;
    const size_t length = decode_base64(header + 6, bytes, sizeof bytes);
    const char *colon = memchr(bytes, ':', length);
    if (colon == NULL)
        return false;
    return is_token(access, colon + 1, length - (size_t)(colon + 1 - bytes));
}

unsigned access_check(const struct access *access, struct MHD_Connection *connection,
                      bool open_to_all)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");

    if (access->check_host && (host == NULL || !is_loopback_name(host)))
        return MHD_HTTP_FORBIDDEN;
    if (access->token[0] != '\0' && !open_to_all && !is_allowed(access, header))
        return MHD_HTTP_UNAUTHORIZED;
    return 0;
}
