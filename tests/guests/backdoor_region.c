/*
 * region(): starts tracing, runs a known number of instructions, stops. In a thread of its own for each argument "threads N".
 * `begin` is the first traced instruction; `stop` is the call that stops, which is not. tests/tests/backdoor.rs has the numbers.
 */
#include "trapline.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __mips__
#define NAME(S) ".globl " S "\n.type " S ", @function\n.ent " S "\n" S ":\n"
#elif defined(__arm__)
#define NAME(S) ".globl " S "\n.type " S ", %function\n" S ":\n"
#else
#define NAME(S) ".globl " S "\n.type " S ", @function\n" S ":\n"
#endif
#define CALL TRAPLINE_CALL_INSN "\n"
#define LABEL(S) ".globl " S "\n" S ":\n"

__asm__(".text\n.p2align 3\n"
#if defined(__thumb__)
        ".syntax unified\n.thumb\n.thumb_func\n"
#elif defined(__arm__)
        ".syntax unified\n.arm\n"
#elif defined(__mips__)
        ".set noreorder\n"
#endif
        NAME("region")
#if defined(__x86_64__)
        "mov $0x54430010, %eax\n xor %edi, %edi\n" CALL
        LABEL("begin") "mov $1000, %ecx\n"
        "1: dec %ecx\n jnz 1b\n"
        "mov $0x54430011, %eax\n xor %edi, %edi\n"
        LABEL("stop") CALL
        "ret\n"
#elif defined(__i386__)
        "mov $0x54430010, %eax\n xor %ecx, %ecx\n" CALL
        LABEL("begin") "mov $1000, %edx\n"
        "1: dec %edx\n jnz 1b\n"
        "mov $0x54430011, %eax\n xor %ecx, %ecx\n"
        LABEL("stop") CALL
        "ret\n"
#elif defined(__aarch64__)
        "mov w8, #0x10\n movk w8, #0x5443, lsl #16\n mov x0, #0\n" CALL
        LABEL("begin") "mov w9, #1000\n"
        "1: subs w9, w9, #1\n b.ne 1b\n"
        "mov w8, #0x11\n movk w8, #0x5443, lsl #16\n mov x0, #0\n"
        LABEL("stop") CALL
        "ret\n"
#elif defined(__arm__)
        "movw r12, #0x10\n movt r12, #0x5443\n mov r0, #0\n" CALL
        LABEL("begin") "mov r2, #1000\n"
        "1: subs r2, r2, #1\n bne 1b\n"
        "movw r12, #0x11\n movt r12, #0x5443\n mov r0, #0\n"
        LABEL("stop") CALL
        "bx lr\n"
#elif defined(__riscv)
        "li a7, 0x54430010\n li a0, 0\n" CALL
        LABEL("begin") "li t0, 1000\n"
        "1: addi t0, t0, -1\n bnez t0, 1b\n"
        "li a7, 0x54430011\n li a0, 0\n"
        LABEL("stop") CALL
        "ret\n"
#elif defined(__mips__)
        "lui $2, 0x5443\n ori $2, $2, 0x10\n move $4, $0\n" CALL
        LABEL("begin") "li $9, 1000\n"
        "1: addiu $9, $9, -1\n bnez $9, 1b\n nop\n"
        "lui $2, 0x5443\n ori $2, $2, 0x11\n move $4, $0\n"
        LABEL("stop") CALL
        "jr $31\n nop\n.end region\n.set reorder\n"
#elif defined(__powerpc__)
        /* A call is aligned to 8; so is what comes between the two. */
        "lis 0, 0x5443\n ori 0, 0, 0x10\n li 3, 0\n" CALL
        LABEL("begin") "li 9, 1000\n"
        "1: addic. 9, 9, -1\n bne 1b\n"
        "lis 0, 0x5443\n ori 0, 0, 0x11\n li 3, 0\n"
        LABEL("stop") CALL
        "blr\n"
#elif defined(__s390x__)
        "llilf %r1, 0x54430010\n lghi %r2, 0\n" CALL
        LABEL("begin") "lghi %r3, 1000\n"
        "1: aghi %r3, -1\n jnz 1b\n"
        "llilf %r1, 0x54430011\n lghi %r2, 0\n"
        LABEL("stop") CALL
        "br %r14\n"
#else
#error "an ISA without a region"
#endif
        LABEL("after") ".previous\n");

void region(void);

static void *thread(void *times)
{
    for (int i = 0; i < *(int *)times; i++) {
        region();
    }
    return 0;
}

/* region [THREADS [TIMES]] */
int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 0, times = argc > 2 ? atoi(argv[2]) : 1;
    pthread_t t[64];

    if (!trapline_present()) {
        puts("absent");
        return 3;
    }
    if (!threads) {
        thread(&times);
        return 0;
    }
    for (int i = 0; i < threads; i++) {
        pthread_create(&t[i], 0, thread, &times);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i], 0);
    }
    return 0;
}
