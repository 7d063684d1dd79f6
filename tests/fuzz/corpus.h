/* corpus.h - the input of mutate.c: samples, each with the byte that says how it is parsed, and words that have a
 * meaning there. The program with the entry function also has the corpus. */
#ifndef MORTISE_TESTS_FUZZ_CORPUS_H
#define MORTISE_TESTS_FUZZ_CORPUS_H

#include <stddef.h>
#include <stdint.h>

struct sample {
    uint8_t how;
    const char *bytes;
    size_t size;
};
extern const struct sample corpus[];
extern const size_t corpus_count;
extern const char *const corpus_words[];
extern const size_t corpus_word_count;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
