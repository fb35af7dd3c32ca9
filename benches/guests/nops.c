/* A loop of 100 nops: 1.1 * 10^9 instructions. Not in the mean of the others. */
#include <stdlib.h>

#define TEN(X) X X X X X X X X X X


/* The argument: how many times it is done. */
int main(int argc, char **argv)
{
    for (volatile long n = 10700000l * (argc > 1 ? atoi(argv[1]) : 1); n; n--) {
        __asm__ volatile(TEN(TEN("nop\n\t")));
    }
    return 0;
}
