/*
 * Calls in awkward places: across the end of a page, and on ARM in an IT block, executed and not, and in 16 bits. Each adds 40
 * and 2 through the backdoor; prints what came back.
 */
#include "trapline.h"
#include <stdio.h>

#if defined(__x86_64__)
#define LOAD "mov $0x54430002, %eax\n mov $40, %edi\n mov $2, %esi\n"
#define RET "ret\n"
#define JUMP "jmp 1f\n"
#define BEFORE_END "3"
#elif defined(__i386__)
#define LOAD "mov $0x54430002, %eax\n mov $40, %ecx\n mov $2, %edx\n"
#define RET "ret\n"
#define JUMP "jmp 1f\n"
#define BEFORE_END "6"
#elif defined(__riscv)
#define LOAD "li a7, 0x54430002\n li a0, 40\n li a1, 2\n"
#define RET "ret\n"
#define JUMP "j 1f\n"
#define BEFORE_END "2"
#elif defined(__thumb__)
#define LOAD "movw r12, #2\n movt r12, #0x5443\n mov.w r0, #40\n mov.w r1, #2\n"
#define RET "bx lr\n"
#define JUMP "b.w 1f\n"
#define BEFORE_END "2"
#endif

#if defined(__thumb__)
#define FUNCTION(F) ".globl " F "\n.thumb_func\n.type " F ", %function\n" F ":\n"
#define HEAD ".text\n.syntax unified\n.thumb\n"
#else
#define FUNCTION(F) ".globl " F "\n.type " F ", @function\n" F ":\n"
#define HEAD ".text\n"
#endif

__asm__(HEAD ".p2align 12\n" FUNCTION("straddle") LOAD JUMP
        ".p2align 12\n .skip 4096 - " BEFORE_END "\n"
        "1: " TRAPLINE_CALL_INSN "\n" RET
#if defined(__thumb__)
        FUNCTION("in_it")
        "mov r3, r0\n" LOAD "cmp r3, #0\n"
        ".inst.n 0xbf1c\n" TRAPLINE_T32_CALL "\n"       /* itt ne; the call */
        ".inst.n 0x3001\n bx lr\n"                      /* addne r0, #1 */
        FUNCTION("last_in_it")
        "mov r3, r0\n" LOAD "cmp r3, #0\n"
        ".inst.n 0xbf18\n" TRAPLINE_T16_CALL "\n"       /* it ne; the call in 16 bits */
        "bx lr\n"
        FUNCTION("in_16_bits") LOAD TRAPLINE_T16_CALL "\n bx lr\n"
#endif
        ".previous\n");

int straddle(void), in_it(int), last_in_it(int), in_16_bits(void);

int main(void)
{
    for (int i = 0; i < 2; i++) {
        printf("straddle %d\n", straddle());
    }
#if defined(__thumb__)
    for (int i = 0; i < 2; i++) {
        printf("in_it %d %d\n", in_it(1), in_it(0));
        printf("last_in_it %d %d\n", last_in_it(0), last_in_it(1));
        printf("in_16_bits %d\n", in_16_bits());
    }
#endif
    return 0;
}
