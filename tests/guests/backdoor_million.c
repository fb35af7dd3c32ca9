/* A million starts and stops, with two instructions between them. x86_64. */
#include "trapline.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 1000000;
    struct timespec a, b;

    if (!trapline_present()) {
        return 3;
    }
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (long i = 0; i < n; i++) {
        __asm__ volatile("mov $0x54430010, %%eax\n xor %%edi, %%edi\n" TRAPLINE_CALL_INSN "\n"
                         "mov $0x54430011, %%eax\n xor %%edi, %%edi\n" TRAPLINE_CALL_INSN
                         : : : "rax", "rdi", "memory");
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    fprintf(stderr, "%.1f ns a call\n",
            ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 2 / (double)n);
    return 0;
}
