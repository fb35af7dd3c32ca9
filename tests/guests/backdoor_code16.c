/*
 * x86's 16-bit code, in a segment of the LDT that does not begin at 0: the probe, a call with the magic, without it, and in the
 * encoding of 32-bit code; and six instructions between START and STOP. What is printed of a signal is where it struck, in the segment
 * and from the symbol.
 */
#define _GNU_SOURCE
#include "trapline.h"
#include <asm/ldt.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define LABEL(S) ".globl " S "\n" S ":\n"

__asm__(".text\n.p2align 4\n.code16\n"
        LABEL("segment") ".skip 0x123, 0xf4\n"
        LABEL("probe16") TRAPLINE_I8086_PROBE "\n lretl\n"
        LABEL("call16") TRAPLINE_I8086_CALL "\n lretl\n"
        LABEL("wide16") TRAPLINE_I386_CALL "\n lretl\n"
        LABEL("start16") TRAPLINE_I8086_CALL "\n"
        LABEL("begin16") "nop\n nop\n nop\n add %edx, %edx\n sub %dx, %dx\n movl $0x54430011, %eax\n"
        LABEL("stop16") TRAPLINE_I8086_CALL "\n lretl\n"
        ".code32\n.previous\n");

extern char segment[], probe16[], call16[], wide16[], start16[];

static sigjmp_buf back;
static volatile int signal_number;
static volatile unsigned cs, eip;

static void handler(int number, siginfo_t *info, void *context)
{
    (void)info;
    signal_number = number;
    cs = ((ucontext_t *)context)->uc_mcontext.gregs[REG_CS];
    eip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_EIP];
    siglongjmp(back, 1);
}

static void try(const char *name, char *code, unsigned command, unsigned a, unsigned b)
{
    struct {
        unsigned offset;
        unsigned short selector;
    } __attribute__((packed)) to = { code - segment, 7 };

    if (!sigsetjmp(back, 1)) {
        __asm__ volatile("lcall *%1" : "+a"(command), "+m"(to), "+c"(a), "+d"(b) : : "memory", "cc");
        printf("%s %d\n", name, (int)command);
    } else {
        printf("%s signal %d at %d, %s\n", name, signal_number, (int)(eip - to.offset), cs == 7 ? "in it" : "elsewhere");
    }
}

int main(void)
{
    struct user_desc d;
    struct sigaction sa;

    memset(&d, 0, sizeof(d));
    d.base_addr = (unsigned)segment;
    d.limit = 0xffff;
    d.contents = MODIFY_LDT_CONTENTS_CODE;
    if (syscall(SYS_modify_ldt, 0x11, &d, sizeof(d))) {
        puts("no LDT");
        return 3;
    }
    memset(&sa, 0, sizeof(sa));
    sa.sa_sigaction = handler;
    sa.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &sa, 0);
    try("probe", probe16, 0, 0, 0);
    try("echo", call16, 0x54430002, 40, 2);
    try("no magic", call16, 2, 40, 2);
    try("half magic", call16, 0x54420002, 40, 2);
    try("of 32 bits", wide16, 0x54430002, 40, 2);
    try("stop", start16, 0x54430010, 0, 0);
    return 0;
}
