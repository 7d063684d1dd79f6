/* pause.c - how long the thread that asks the backend waits until it asks again.
 *
 * After an answer at least four times as long as the listing took, so that a large backend spends at most a fifth of the time
 * on it. What it took includes the time for which this process was stopped or the machine suspended: that says nothing of the
 * backend, so the pause has a limit. A listing that failed is asked again after one interval, so that the page soon sees that
 * the backend is back. */
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
