/* proof.c - the deadline that beats prove. See proof.h. */
#include "proof.h"

#define NS_PER_MS INT64_C(1000000)

void proof_begin(struct proof *proof, int64_t now_ns)
{
    *proof = (struct proof){.newest_ns = now_ns};
}

/* The leader heard of the session after this instant. The clocks may drift by 1 %. */
static void prove(struct proof *proof, int64_t instant_ns)
{
    int64_t margin_ns = proof->timeout_ns / 100 + 2 * NS_PER_MS;
    int64_t deadline_ns = instant_ns + proof->timeout_ns - margin_ns;
    if (deadline_ns > proof->deadline_ns)
        proof->deadline_ns = deadline_ns;
}

/* The server gives the session less time from now on. It has heard of the session after the newest beat was sent. */
static void shorten(struct proof *proof, int64_t timeout_ns)
{
    int64_t before_ns = proof->deadline_ns;
    proof->timeout_ns = timeout_ns;
    proof->deadline_ns = 0;
    prove(proof, proof->newest_ns);
    if (proof->deadline_ns >= before_ns)
        proof->deadline_ns = before_ns;
    else if (before_ns > proof->told_ns)
        proof->told_ns = before_ns;
}

void proof_connected(struct proof *proof, int64_t timeout_ms, int64_t tick_ms)
{
    bool is_new = proof->timeout_ns == 0;
    int64_t timeout_ns = timeout_ms * NS_PER_MS;
    if (is_new)
        proof->timeout_ns = timeout_ns;
    else if (timeout_ns < proof->timeout_ns)
        shorten(proof, timeout_ns);
    proof->half_tick_ns = timeout_ns / 4; /* a timeout is two ticks or more */
    if (tick_ms > 0)
        proof->half_tick_ns = tick_ms * NS_PER_MS / 2;
    proof->count = 0;
    proof->resumed_ns = is_new ? 0 : proof->newest_ns;
    if (is_new)
        prove(proof, proof->newest_ns);
}

void proof_unanswered(struct proof *proof, int64_t sent_ns)
{
    if (sent_ns > proof->newest_ns)
        proof->newest_ns = sent_ns;
}

/* Finds the newest beat P with a beat Q that was sent half a tick or more after the answer to P; this beat, R, was sent
 * after the answer to Q. */
void proof_answered(struct proof *proof, int64_t sent_ns, int64_t now_ns)
{
    if (proof->resumed_ns != 0)
        prove(proof, proof->resumed_ns);
    proof->resumed_ns = 0;
    size_t kept = proof->count < PROOF_BEATS ? proof->count : PROOF_BEATS;
    int64_t q_sent_ns = -1;
    for (size_t back = 1; back <= kept; back++) {
        size_t i = (proof->count - back) % PROOF_BEATS;
        if (q_sent_ns >= 0 && proof->beats[i].answered_ns + proof->half_tick_ns <= q_sent_ns) {
            prove(proof, proof->beats[i].sent_ns);
            break;
        }
        if (q_sent_ns < 0 && proof->beats[i].answered_ns <= sent_ns)
            q_sent_ns = proof->beats[i].sent_ns;
    }
    size_t slot = proof->count++ % PROOF_BEATS;
    proof->beats[slot].sent_ns = sent_ns;
    proof->beats[slot].answered_ns = now_ns;
    proof_unanswered(proof, sent_ns);
}
