/* How many instructions lie between two calls that ask for their number. x86_64. */
#include "trapline.h"
#include <stdio.h>

int main(void)
{
    trapline_s64 a = 0, b = 0;

    if (trapline_icount(0) < 0) {
        printf("%d\n", (int)trapline_icount(0));
        return 0;
    }
    __asm__ volatile("mov $0x54430030, %%eax\n xor %%edi, %%edi\n xor %%esi, %%esi\n" TRAPLINE_CALL_INSN "\n"
                     "mov %%rax, %0\n"
                     ".rept 50\n nop\n inc %%edx\n .endr\n"
                     "mov $0x54430030, %%eax\n xor %%edi, %%edi\n xor %%esi, %%esi\n" TRAPLINE_CALL_INSN "\n"
                     "mov %%rax, %1\n"
                     : "=&r"(a), "=&r"(b) : : "rax", "rdi", "rsi", "rdx", "memory");
    printf("%lld\n", (long long)(b - a));
    return 0;
}
