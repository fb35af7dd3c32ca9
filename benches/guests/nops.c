/* A loop of 100 nops: 1.1 * 10^9 instructions. Not in the mean of the others. */
#include "main.h"

#define TEN(X) X X X X X X X X X X

static void once(void)
{
    for (volatile long n = 10700000; n; n--) {
        __asm__ volatile(TEN(TEN("nop\n\t")));
    }
}
