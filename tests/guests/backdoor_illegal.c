/*
 * The call without the magic is the ISA's illegal instruction: the signal, and where. Everywhere the same: natively, in any QEMU.
 * backdoor_illegal: prints what the handler got; "delay" is MIPS's: in a delay slot it is illegal even with the magic.
 * backdoor_illegal break: BREAK, which debuggers stop at, and its result.
 */
#define _GNU_SOURCE
#include "trapline.h"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile int signal_number;
static void *volatile where;

static void handler(int number, siginfo_t *info, void *context)
{
    signal_number = number;
#ifdef __mips__
    /* QEMU tells no address. */
    (void)info;
    where = (void *)(long)((ucontext_t *)context)->uc_mcontext.pc;
#else
    (void)context;
    where = info->si_addr;
#endif
    siglongjmp(back, 1);
}

#if defined(__x86_64__) || defined(__i386__)
#define CODE(CMD) "mov $" CMD ", %eax\n"
#define RETURN "ret\n"
#elif defined(__aarch64__)
#define CODE(CMD) "ldr w8, =" CMD "\n"
#define RETURN "ret\n.ltorg\n"
#elif defined(__arm__)
#define CODE(CMD) "ldr r12, =" CMD "\n"
#define RETURN "bx lr\n.ltorg\n"
#elif defined(__riscv)
#define CODE(CMD) "li a7, " CMD "\n"
#define RETURN "ret\n"
#elif defined(__mips__)
#define CODE(CMD) "li $2, " CMD "\n"
#define RETURN "jr $31\n nop\n"
#elif defined(__powerpc__)
#define CODE(CMD) "lis 0, " CMD "@h\n ori 0, 0, " CMD "@l\n .p2align 3\n"
#define RETURN "blr\n"
#elif defined(__s390x__)
#define CODE(CMD) "llilf %r1, " CMD "\n"
#define RETURN "br %r14\n"
#endif

#if defined(__thumb__)
#define START ".text\n.syntax unified\n.thumb\n.p2align 3\n"
#define FUNCTION(F) ".globl " F "\n.thumb_func\n.type " F ", %function\n" F ":\n"
#elif defined(__arm__)
#define START ".text\n.syntax unified\n.arm\n.p2align 3\n"
#define FUNCTION(F) ".globl " F "\n.type " F ", %function\n" F ":\n"
#elif defined(__mips__)
#define START ".text\n.set noreorder\n.p2align 3\n"
#define FUNCTION(F) ".globl " F "\n" F ":\n"
#else
#define START ".text\n.p2align 3\n"
#define FUNCTION(F) ".globl " F "\n" F ":\n"
#endif

__asm__(START
        FUNCTION("no_magic") CODE("0x00000002") ".globl no_magic_at\nno_magic_at: " TRAPLINE_CALL_INSN "\n" RETURN
        FUNCTION("half_magic") CODE("0x54420002") ".globl half_magic_at\nhalf_magic_at: " TRAPLINE_CALL_INSN "\n" RETURN
        FUNCTION("good_magic") CODE("0x54430000") ".globl good_magic_at\ngood_magic_at: " TRAPLINE_CALL_INSN "\n" RETURN
        FUNCTION("break_magic") CODE("0x54430052") TRAPLINE_CALL_INSN "\n.globl broken\nbroken: " RETURN
#if defined(__mips__) && !defined(__mips_micromips)
        FUNCTION("delay") CODE("0x54430000") ".globl delay_at\ndelay_at: b 1f\n" TRAPLINE_CALL_INSN "\n1: " RETURN
        ".set reorder\n"
#endif
        ".previous\n");

int break_magic(void);
void no_magic(void), half_magic(void), good_magic(void), delay(void);
extern char no_magic_at[], half_magic_at[], good_magic_at[], delay_at[];

static void try(const char *name, void (*code)(void), char *at)
{
    signal_number = 0;
    where = 0;
    if (!sigsetjmp(back, 1)) {
        code();
        printf("%s came back\n", name);
    } else {
        printf("%s signal %d at %ld\n", name, signal_number, (long)((char *)where - at));
    }
}

int main(int argc, char **argv)
{
    struct sigaction sa;

    if (argc > 1 && !strcmp(argv[1], "break")) {
        printf("break %d\n", break_magic());
        return 0;
    }
    memset(&sa, 0, sizeof(sa));
    sa.sa_sigaction = handler;
    sa.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &sa, 0);
    try("no_magic", no_magic, no_magic_at);
    try("half_magic", half_magic, half_magic_at);
    try("good_magic", good_magic, good_magic_at);
#if defined(__mips__) && !defined(__mips_micromips)
    try("delay", delay, delay_at);
#endif
    return 0;
}
