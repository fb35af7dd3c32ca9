/*
 * Work for about a second that links the library: "never" starts tracing, or "stopped" it after one turn of the work; "marks"
 * leaves a mark per turn. For measuring: stopped code is QEMU's own. With a third argument the work is done once for each byte of
 * standard input, and the processor time that it took is answered (8 bytes, ns), so that several can be measured in turn.
 */
#include "trapline.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned table[1 << 12];
static unsigned sum;

static void work(long turns, int marks)
{
    for (long t = 0; t < turns; t++) {
        for (unsigned i = 0; i < sizeof(table) / sizeof(*table); i++) {
            table[i] = table[i] * 1664525u + 1013904223u + sum;
            sum += table[i] >> 16 & (i & 1 ? 255 : 127);
        }
        /* What a program under observation does: asks, and is told that nobody listens. */
        if (trapline_present() && marks) {
            trapline_mark("turn", (trapline_word)t);
        }
    }
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "never";
    long turns = argc > 2 ? atol(argv[2]) : 30000;

    if (!strcmp(how, "stopped")) {
        trapline_start(TRAPLINE_SCOPE_ALL);
        work(1, 0);
        trapline_stop(TRAPLINE_SCOPE_ALL);
    }
    if (argc > 3) {
        for (char c; read(0, &c, 1) == 1;) {
            int64_t took = -now();
            work(turns, 0);
            took += now();
            if (write(1, &took, sizeof(took)) != sizeof(took)) {
                return 1;
            }
        }
        return 0;
    }
    work(turns, !strcmp(how, "marks"));
    printf("%u\n", sum);
    return 0;
}
