/*
 * Prints a model file and a case file that a seed stands for, one after the other, for
 * validation/gpu-check: random-case-text SEED
 */

#include <stdio.h>

#include "random-case.h"

int main(int argc, char **argv) {
    guint64 seed;

    if (argc != 2 || !g_ascii_string_to_unsigned(argv[1], 10, 0, G_MAXUINT, &seed, NULL)) {
        fprintf(stderr, "usage: random-case-text SEED\n");
        return 2;
    }
    g_autoptr(RandomCase) random = random_case_new((guint)seed);
    g_autofree char *text = random_case_to_string(random);
    fputs(text, stdout);
    return 0;
}
