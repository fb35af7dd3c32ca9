/*
 * Work for about a second that links the library: "never" starts tracing, or "stopped" it before the work; "marks" leaves a
 * mark per turn. For measuring: stopped code is QEMU's own.
 */
#include "trapline.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned table[1 << 12];

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "never";
    long turns = argc > 2 ? atol(argv[2]) : 30000;
    unsigned sum = 0;

    if (!strcmp(how, "stopped")) {
        trapline_start(TRAPLINE_SCOPE_ALL);
        trapline_stop(TRAPLINE_SCOPE_ALL);
    }
    for (long t = 0; t < turns; t++) {
        for (unsigned i = 0; i < sizeof(table) / sizeof(*table); i++) {
            table[i] = table[i] * 1664525u + 1013904223u + sum;
            sum += table[i] >> 16 & (i & 1 ? 255 : 127);
        }
        /* What a program under observation does: asks, and is told that nobody listens. */
        if (trapline_present() && !strcmp(how, "marks")) {
            trapline_mark("turn", (trapline_word)t);
        }
    }
    printf("%u\n", sum);
    return 0;
}
