/* cc -I../include hello.c && trapline run --start-off --analyzer trace -- ./a.out */
#include "trapline.h"
#include <stdio.h>

static int collatz(long n)
{
    int steps = 0;

    for (; n != 1; steps++) {
        n = n % 2 ? 3 * n + 1 : n / 2;
    }
    return steps;
}

int main(void)
{
    printf(trapline_present() ? "Trapline answers\n" : "nobody answers\n");
    for (int i = 1; i <= 3; i++) {
        trapline_roi_begin(1, "collatz");
        trapline_start(TRAPLINE_SCOPE_DEFAULT);
        int steps = collatz(27 * i);
        trapline_stop(TRAPLINE_SCOPE_DEFAULT);
        trapline_roi_end(1, "collatz");
        trapline_mark("steps", (trapline_word)steps);
    }
    return 0;
}
