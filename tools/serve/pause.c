/* pause.c - how long the thread that asks the backend waits until it asks again.
 *
 * After an answer, the pause is at least four times as long as the listing took, so that a large backend spends at most a
 * fifth of its time on listings. The time that a listing took includes time in which this process was stopped or the machine
 * suspended. That says nothing about the backend, so the pause has a limit. After a failed listing, the thread asks again
 * after one interval, so that the page soon shows that the backend is back. */
#include "pause.h"

int pause_ms(bool answered, int64_t took_ms, int64_t interval_ms)
{
    const int64_t longest_ms = interval_ms > PAUSE_MAX_MS ? interval_ms : PAUSE_MAX_MS;

    if (!answered || took_ms < interval_ms / 4)
        return (int)interval_ms;
    if (took_ms >= longest_ms / 4)
        return (int)longest_ms;
    return (int)(took_ms * 4 > interval_ms ? took_ms * 4 : interval_ms);
}
