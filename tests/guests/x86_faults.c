/*
 * Faults with handlers that recover. The first argument says which; the instructions in question have names.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

static sigjmp_buf out;
static char *guard;
static volatile int signals;
int x;
char altstack[1 << 16];

asm(".globl divide\n"
    "divide: xor %ecx, %ecx\n"
    "d_nop: nop\n"
    "mov $39, %eax\n"
    "d_sys: syscall\n"
    "xor %ecx, %ecx\n"
    "d_div: idivl %ecx\n"
    "d_after: ret\n"
    "d_end: nop\n"
    ".globl store_guard\n"
    "store_guard: movl $0x55, (%rdi)\n"
    "g_after: ret\n"
    "g_end: nop\n"
    ".globl push_guard\n" /* rdi: a stack that ends at the guard's end + 8 */
    "push_guard: mov %rsp, %rbx\n"
    "mov %rdi, %rsp\n"
    "p_push: pushq source(%rip)\n"
    "p_after: mov %rbx, %rsp\n"
    "ret\n"
    "p_end: nop\n"
    ".globl illegal\n"
    "illegal: ud2\n"
    "i_add: addl $1, x(%rip)\n"
    "ret\n"
    "i_end: nop\n"
    ".globl fxsave_guard\n"
    "fxsave_guard: fxsave (%rdi)\n"
    "f_after: ret\n"
    "f_end: nop\n"
    ".globl fill, move\n" /* rdi, rcx */
    "fill: mov $0x77, %eax\n"
    "r_fill: rep stosb\n"
    "r_ret: ret\n"
    "move: rep movsb\n"
    "m_ret: ret\n"
    "m_end: nop\n"
    ".globl flood\n" /* rcx: turns */
    "flood: lea pair(%rip), %rdi\n"
    "push %rbx\n"
    "fl_load: fldt real(%rip)\n"
    "fl_store: fstpt real(%rip)\n"
    "mov (%rdi), %rax\n"
    "mov 8(%rdi), %rdx\n"
    "mov %rax, %rbx\n"
    "push %rcx\n"
    "mov %rdx, %rcx\n"
    "fl_cas: lock cmpxchg16b (%rdi)\n"
    "pop %rcx\n"
    "dec %rcx\n"
    "fl_jump: jnz fl_load\n"
    "pop %rbx\n"
    "ret\n"
    "fl_end: nop\n"
    ".globl spin\n" /* rcx: turns */
    "spin: dec %rcx\n"
    "s_jump: jnz spin\n"
    "s_ret: ret\n"
    "s_end: nop\n"
    ".data\n.balign 16\npair: .quad 1, 2\nreal: .fill 16, 1, 0\nsource: .quad 0x1234567890abcdef\n.text\n");
extern void divide(void), store_guard(char *), push_guard(char *), illegal(void), fxsave_guard(char *);
extern void fill(void), move(void), flood(void), spin(void);

void jump(int sig)
{
    siglongjmp(out, sig);
}

void unguard(int sig, siginfo_t *info, void *context)
{
    mprotect(guard, 4096, PROT_READ | PROT_WRITE);
}

void skip2(int sig, siginfo_t *info, void *context)
{
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

void tick(int sig)
{
    signals++;
}

static void handle(int sig, void *handler, int flags)
{
    struct sigaction sa = { .sa_flags = flags };

    sa.sa_sigaction = handler;
    sigaction(sig, &sa, 0);
}

static void timer(int us)
{
    struct itimerval t = { { 0, us }, { 0, us } };

    handle(SIGALRM, tick, SA_RESTART);
    setitimer(ITIMER_REAL, &t, 0);
}

static void call(void (*f)(void), void *rdi, void *rsi, unsigned long rcx)
{
    asm volatile("call *%3" : "+D"(rdi), "+S"(rsi), "+c"(rcx) : "r"(f) : "rax", "rdx", "r11", "memory", "cc");
}

char from[1000000], to[1000000];

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    stack_t ss = { .ss_sp = altstack, .ss_size = sizeof altstack };
    char *pages = mmap((void *)0x60000000, 8192, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    guard = pages + 4096;
    mprotect(guard, 4096, PROT_NONE);
    sigaltstack(&ss, 0);

    if (!strcmp(which, "divide")) {
        handle(SIGFPE, jump, 0);
        for (volatile int i = 0; i < 1000; i++) {
            if (!sigsetjmp(out, 1)) {
                divide();
            }
        }
    } else if (!strcmp(which, "store")) {
        handle(SIGSEGV, unguard, SA_SIGINFO);
        store_guard(guard);
    } else if (!strcmp(which, "push")) {
        handle(SIGSEGV, unguard, SA_SIGINFO | SA_ONSTACK);
        asm volatile("call push_guard" : : "D"(guard + 8) : "rbx", "memory");
    } else if (!strcmp(which, "illegal")) {
        handle(SIGILL, skip2, SA_SIGINFO);
        illegal();
    } else if (!strcmp(which, "fxsave")) {
        handle(SIGSEGV, jump, 0);
        for (volatile int i = 0; i < 100; i++) {
            if (!sigsetjmp(out, 1)) {
                fxsave_guard(guard);
            }
        }
    } else if (!strcmp(which, "rep")) {
        handle(SIGSEGV, unguard, SA_SIGINFO);
        call(fill, pages, 0, 0);
        call(fill, guard - 6, 0, 20);
    } else if (!strcmp(which, "move") || !strcmp(which, "move-timer")) {
        if (which[4]) {
            timer(1000);
        }
        call(move, to, from, sizeof to);
    } else if (!strcmp(which, "flood")) {
        timer(200);
        call(flood, 0, 0, 20000);
    } else if (!strcmp(which, "spin")) {
        timer(200);
        call(spin, 0, 0, 1000000);
    } else {
        return 2;
    }
    printf("%d\n", signals);
    return 0;
}
