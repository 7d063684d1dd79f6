/* fault.c - what went wrong with a server. The first word of an error reply says what kind it is, or the word inside a
 * script's error. Messages name the server; they never carry arguments of commands, which may be secrets. */
#include "link.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *word;
    enum link_error error;
} words[] = {
    {"NOSCRIPT", LINK_ERROR_NOSCRIPT},
    {"READONLY", LINK_ERROR_READONLY},
    {"LOADING", LINK_ERROR_LOADING},
    {"MASTERDOWN", LINK_ERROR_READONLY},
    {"CLUSTERDOWN", LINK_ERROR_DOWN},
    {"BUSY", LINK_ERROR_BUSY},
    {"OOM", LINK_ERROR_OOM},
    {"MISCONF", LINK_ERROR_MISCONF},
    {"NOREPLICAS", LINK_ERROR_MISCONF},
    {"MOVED", LINK_ERROR_MOVED},
    {"ASK", LINK_ERROR_ASK},
    {"TRYAGAIN", LINK_ERROR_TRYAGAIN},
    {"CROSSSLOT", LINK_ERROR_CROSSSLOT},
    {"NOAUTH", LINK_ERROR_NOAUTH},
    {"WRONGPASS", LINK_ERROR_NOAUTH},
    {"DENIED", LINK_ERROR_NOAUTH},
    {"NOPERM", LINK_ERROR_NOPERM},
    {"WRONGTYPE", LINK_ERROR_WRONGTYPE},
};

static const struct {
    mortise_status status;
    bool retryable;
    const char *advice; /* behind the server's own words */
} meanings[] = {
    [LINK_ERROR_OTHER] = {MORTISE_BACKEND, false, NULL},
    [LINK_ERROR_NOSCRIPT] = {MORTISE_UNREACHABLE, true, NULL},
    [LINK_ERROR_READONLY] = {MORTISE_UNREACHABLE, true, "this is a replica, not the primary"},
    [LINK_ERROR_LOADING] = {MORTISE_UNREACHABLE, true, NULL},
    [LINK_ERROR_BUSY] = {MORTISE_UNREACHABLE, true, NULL},
    [LINK_ERROR_OOM] = {MORTISE_BACKEND, true, "raise maxmemory, or remove other keys"},
    [LINK_ERROR_MISCONF] = {MORTISE_BACKEND, true, NULL},
    [LINK_ERROR_MOVED] = {MORTISE_BACKEND, false,
                          "this is a node of a cluster; a single primary is needed"},
    [LINK_ERROR_ASK] = {MORTISE_BACKEND, false,
                        "this is a node of a cluster; a single primary is needed"},
    [LINK_ERROR_TRYAGAIN] = {MORTISE_UNREACHABLE, true, NULL},
    [LINK_ERROR_DOWN] = {MORTISE_UNREACHABLE, true, NULL},
    [LINK_ERROR_CROSSSLOT] =
        {MORTISE_BACKEND, false,
         "all keys of a lock are in one slot, unless a proxy changes their names"},
    [LINK_ERROR_SPLIT] = {MORTISE_UNREACHABLE, true, NULL},
    [LINK_ERROR_NOAUTH] = {MORTISE_BACKEND, false, NULL},
    [LINK_ERROR_NOPERM] = {MORTISE_BACKEND, false, NULL},
    [LINK_ERROR_WRONGTYPE] = {MORTISE_BACKEND, false, "the key is used for something else"},
    [LINK_ERROR_UNKNOWN] = {MORTISE_BACKEND, false, NULL},
};

static bool begins(const char *text, size_t length, const char *word)
{
    size_t n = strlen(word);
    return length >= n && memcmp(text, word, n) == 0 &&
           (length == n || !isupper((unsigned char)text[n]));
}

static enum link_error first_word(const char *text, size_t length)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (begins(text, length, words[i].word))
            return words[i].error;
    return LINK_ERROR_OTHER;
}

enum link_error link_error_of(const char *text, size_t length)
{
    enum link_error error = first_word(text, length);
    if (error != LINK_ERROR_OTHER)
        return error;
    if (memmem(text, length, "unknown command", 15) != NULL)
        return LINK_ERROR_UNKNOWN;
    if (memmem(text, length, "Script attempted to ", 20) != NULL ||
        memmem(text, length, "Lua script attempted to ", 24) != NULL) /* before Redis 7 */
        return LINK_ERROR_SPLIT;
    if (memmem(text, length, "The user executing the script can't", 35) != NULL ||
        memmem(text, length, "ACL failure in script: ", 23) != NULL) /* from Redis 7.2 on */
        return LINK_ERROR_NOPERM; /* of a command or key inside a script */
    /* before Redis 7 a script's error is inside: "ERR Error running script (call to f_…): @user_script:3:
     * @user_script: 3: -OOM command not allowed …"; so is an error after EXEC */
    const char *inner = text;
    while ((inner = memmem(inner, length - (size_t)(inner - text), ": -", 3)) != NULL) {
        inner += 3;
        error = first_word(inner, length - (size_t)(inner - text));
        if (error != LINK_ERROR_OTHER)
            return error;
    }
    inner = memmem(text, length, "because of previous errors", 26);
    return inner != NULL ? LINK_ERROR_OTHER : error;
}

void link_fault_set(struct link_fault *fault, mortise_status status, bool retryable, int native,
                    const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fault->status = status;
    fault->retryable = retryable;
    fault->error = LINK_ERROR_OTHER;
    fault->native = native;
    vsnprintf(fault->text, sizeof(fault->text), format, arguments);
    va_end(arguments);
}

/* Copies the printable part of a server's text, up to where the server repeats what was sent to it. */
static void copy_words(char *to, size_t size, const char *text, size_t length)
{
    static const char echo[] = ", with args beginning with";
    const char *end = memmem(text, length, echo, sizeof(echo) - 1);
    if (end != NULL)
        length = (size_t)(end - text);
    size_t n = length < size - 1 ? length : size - 1;
    for (size_t i = 0; i < n; i++)
        to[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    to[n] = '\0';
}

void link_fault_reply(const struct link *link, const redisReply *reply, struct link_fault *fault)
{
    char said[200];
    if (reply->type != REDIS_REPLY_ERROR) {
        link_fault_set(fault, MORTISE_BACKEND, false, 0,
                       "%s: an answer of an unexpected kind (%d); is this Redis?",
                       link->endpoint.text, reply->type);
        return;
    }
    enum link_error error = link_error_of(reply->str, reply->len);
    copy_words(said, sizeof(said), reply->str, reply->len);
    const char *advice = meanings[error].advice;
    link_fault_set(fault, meanings[error].status, meanings[error].retryable, 0, "%s: %s%s%s%s",
                   link->endpoint.text, said, advice ? " (" : "", advice ? advice : "",
                   advice ? ")" : "");
    fault->error = error;
}
