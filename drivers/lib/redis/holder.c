/* holder.c - who holds a lock, read from the value of a string: "<grant> <token> <since, us>\n<note>". */
#include "holder.h"

#include <string.h>

/* "host\npid\nprogram" */
static void set_note(mortise_info *info, const char *note, size_t length)
{
    const char *end = note + length;
    size_t n;
    const char *text = text_part(&note, end, '\n', &n);
    text_copy(info->host, sizeof(info->host), text, n);
    text = text_part(&note, end, '\n', &n);
    info->pid = (int64_t)(text_number(text, n) & INT64_MAX);
    text_copy(info->program, sizeof(info->program), note, (size_t)(end - note));
}

void holder_set(mortise_info *info, const char *owner, size_t owner_len, uint64_t token,
                uint64_t since_us, uint64_t now_us, const char *note, size_t note_len)
{
    info->held = true;
    text_copy(info->owner, sizeof(info->owner), owner, owner_len);
    info->token = token;
    info->held_ms = since_us > 0 && now_us > 0
                        ? (now_us > since_us ? (int64_t)((now_us - since_us) / 1000) : 0)
                        : -1;
    info->leases = 1;
    info->waiters = -1;
    info->mode = MORTISE_EXCLUSIVE;
    info->permits = 0;
    info->holders = 1;
    set_note(info, note, note_len);
}

/* ---- strings ------------------------------------------------------------------------------------------ */

bool holder_of_string(const char *value, size_t length, uint64_t now_us, mortise_info *info)
{
    const char *text = value, *end = value + length;
    size_t grant_len, token_len, since_len;
    const char *grant = text_part(&text, end, ' ', &grant_len);
    const char *token = text_part(&text, end, ' ', &token_len);
    const char *since = text_part(&text, end, '\n', &since_len);
    if (grant_len != GRANT_HEX || token_len == 0 || since_len == 0) {
        holder_set(info, value, length < 64 ? length : 0, 0, 0, 0, "", 0);
        return false;
    }
    holder_set(info, grant, grant_len, text_number(token, token_len), text_number(since, since_len),
               now_us, text, (size_t)(end - text));
    return true;
}
