/* mutate.c - feeds a libFuzzer entry without libFuzzer: with the samples of a small corpus, and with what a seed
 * makes of them by changing, cutting, doubling and joining them, and by inserting words that have a meaning. Each
 * text is in memory of its exact size, so a sanitizer notices if a byte behind it is read.
 *
 *     fuzz_NAME [SEED [ROUNDS]]
 *
 * Prints the seed. Without one it is 1; with MORTISE_NIGHTLY=1 it is a fresh one, and there are twenty times as many
 * rounds. If the program crashes, it prints the text that it was trying, as a C string. */
#include "corpus.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX 4096

/* Where there is a sanitizer, which ends the process by itself. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static uint64_t state;
static const uint8_t *tried;
static size_t tried_size;

/* By write(2): the process is about to end. */
static void tell_tried(void)
{
    char text[5];
    bool told = write(STDERR_FILENO, "\ntried: \"", 9) == 9;
    for (size_t i = 0; i < tried_size && told; i++) {
        snprintf(text, sizeof text, "\\%03o", tried[i]);
        bool plain = tried[i] >= ' ' && tried[i] < 127 && tried[i] != '"' && tried[i] != '\\';
        told = plain ? write(STDERR_FILENO, &tried[i], 1) == 1 : write(STDERR_FILENO, text, 4) == 4;
    }
    if (told && write(STDERR_FILENO, "\"\n", 2) != 2)
        _exit(1);
}

static void die(int number)
{
    tell_tried();
    signal(number, SIG_DFL);
    raise(number);
}

static size_t below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit > 0 ? (size_t)(state % limit) : 0;
}

struct text {
    uint8_t bytes[TEXT_MAX];
    size_t size;
};

/* In place of `cut` bytes at `at`; what finds no room is left out. */
static void put(struct text *text, size_t at, size_t cut, const void *bytes, size_t size)
{
    if (cut > text->size - at)
        cut = text->size - at;
    if (text->size - cut + size > TEXT_MAX)
        return;
    memmove(text->bytes + at + size, text->bytes + at + cut, text->size - at - cut);
    memcpy(text->bytes + at, bytes, size);
    text->size = text->size - cut + size;
}

static void mutate(struct text *text)
{
    uint8_t part[64];
    size_t at = below(text->size + 1), size;
    const char *word = corpus_words[below(corpus_word_count)];
    const struct sample *other = &corpus[below(corpus_count)];
    switch (below(7)) {
    case 0: /* a bit */
        if (at < text->size)
            text->bytes[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1: /* a byte, in place of one or between two */
        part[0] = (uint8_t)below(256);
        put(text, at, below(2), part, 1);
        break;
    case 2:
        put(text, at, below(below(2) ? 4 : 64), "", 0);
        break;
    case 3: /* twice */
        size = below(sizeof part);
        if (size > text->size - at)
            size = text->size - at;
        memcpy(part, text->bytes + at, size);
        put(text, below(text->size + 1), 0, part, size);
        break;
    case 4: /* the rest of another */
        size = below(other->size + 1);
        put(text, at, text->size, other->bytes + size, other->size - size);
        break;
    default:
        put(text, at, below(8), word, strlen(word));
    }
}

/* Behind the byte that says how it is to be read. */
static void try(const struct text *text, uint8_t how)
{
    uint8_t *exact = malloc(text->size + 1);
    if (!exact)
        abort();
    exact[0] = how;
    memcpy(exact + 1, text->bytes, text->size);
    tried = exact;
    tried_size = text->size + 1;
    LLVMFuzzerTestOneInput(exact, tried_size);
    tried_size = 0;
    free(exact);
}

static void one_round(size_t number)
{
    const struct sample *sample = &corpus[number % corpus_count];
    struct text text = {.size = sample->size};
    memcpy(text.bytes, sample->bytes, sample->size);
    if (number >= corpus_count) /* each as it is, first */
        for (size_t times = below(6) + 1; times > 0; times--)
            mutate(&text);
    try(&text, sample->how);
}

int main(int argc, char **argv)
{
    const char *nightly = getenv("MORTISE_NIGHTLY");
    bool takes_its_time = nightly && strcmp(nightly, "1") == 0;
    uint64_t seed = takes_its_time ? (uint64_t)time(NULL) : 1;
    size_t rounds = takes_its_time ? 20 * ROUNDS : ROUNDS;
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        rounds = strtoull(argv[2], NULL, 10);
    state = seed * 0x9e3779b97f4a7c15u | 1;
    printf("seed %llu, %zu rounds\n", (unsigned long long)seed, rounds);
    fflush(stdout);
    signal(SIGABRT, die);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(tell_tried);
    else
        signal(SIGSEGV, die);
    for (size_t number = 0; number < rounds; number++)
        one_round(number);
    return 0;
}
