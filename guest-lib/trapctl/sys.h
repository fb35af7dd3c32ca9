/*
 * The few system calls that trapctl makes, and its way in, without a C library: so it is a few KB and needs nothing in the guest.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TRAPCTL_SYS_H
#define TRAPCTL_SYS_H

#if defined(__x86_64__)
#define SYS_write 1
#define SYS_clone 56
#define SYS_execve 59
#define SYS_wait4 61
#define SYS_exit_group 231
#define ENTRY "xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call trapctl_start\n"
#elif defined(__i386__)
#define SYS_write 4
#define SYS_clone 120
#define SYS_execve 11
#define SYS_wait4 114
#define SYS_exit_group 252
#define ENTRY "xor %ebp, %ebp\n mov %esp, %eax\n and $-16, %esp\n sub $12, %esp\n push %eax\n call trapctl_start\n"
#elif defined(__aarch64__) || defined(__riscv) || defined(__loongarch__)
#define SYS_write 64
#define SYS_clone 220
#define SYS_execve 221
#define SYS_wait4 260
#define SYS_exit_group 94
#if defined(__aarch64__)
#define ENTRY "mov x29, #0\n mov x0, sp\n bl trapctl_start\n"
#elif defined(__riscv)
#define ENTRY ".option push\n.option norelax\n lla gp, __global_pointer$\n.option pop\n mv a0, sp\n andi sp, sp, -16\n call trapctl_start\n"
#else
#define ENTRY "move $a0, $sp\n bl trapctl_start\n"
#endif
#elif defined(__arm__)
#define SYS_write 4
#define SYS_clone 120
#define SYS_execve 11
#define SYS_wait4 114
#define SYS_exit_group 248
#ifdef __thumb__
#define ENTRY "mov r0, sp\n mov r1, r0\n lsrs r1, r1, #3\n lsls r1, r1, #3\n mov sp, r1\n bl trapctl_start\n"
#else
#define ENTRY "mov r0, sp\n bic sp, sp, #7\n bl trapctl_start\n"
#endif
#elif defined(__mips__)
#if defined(_ABIO32)
#define SYS_write 4004
#define SYS_clone 4120
#define SYS_execve 4011
#define SYS_wait4 4114
#define SYS_exit_group 4246
#else
#define SYS_write 5001
#define SYS_clone 5055
#define SYS_execve 5057
#define SYS_wait4 5059
#define SYS_exit_group 5205
#endif
#define ENTRY \
    ".set push\n.set noreorder\n bal 1f\n nop\n1: .cpload $31\n.set pop\n" \
    " move $4, $29\n addiu $29, $29, -32\n la $25, trapctl_start\n jalr $25\n nop\n"
#elif defined(__powerpc__)
#define SYS_write 4
#define SYS_clone 120
#define SYS_execve 11
#define SYS_wait4 114
#define SYS_exit_group 234
#if defined(__powerpc64__)
#define ENTRY \
    "0: addis 2, 12, .TOC.-0b@ha\n addi 2, 2, .TOC.-0b@l\n mr 3, 1\n clrrdi 1, 1, 4\n li 0, 0\n stdu 0, -64(1)\n bl trapctl_start\n nop\n"
#else
#define ENTRY "mr 3, 1\n clrrwi 1, 1, 4\n li 0, 0\n stwu 0, -32(1)\n bl trapctl_start\n"
#endif
#elif defined(__s390x__)
#define SYS_write 4
#define SYS_clone 120
#define SYS_execve 11
#define SYS_wait4 114
#define SYS_exit_group 248
#define ENTRY "lgr %r2, %r15\n aghi %r15, -160\n brasl %r14, trapctl_start\n"
#else
#error "trapctl knows no system calls of this ISA: build it with a C library, -DTRAPCTL_LIBC"
#endif

/* A system call of up to four arguments; a negative errno if it fails. */
static inline long sys4(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return number;
#elif defined(__i386__)
    __asm__ volatile("int $0x80" : "+a"(number) : "b"(a), "c"(b), "d"(c), "S"(d) : "memory");
    return number;
#elif defined(__aarch64__)
    register long n __asm__("x8") = number, r0 __asm__("x0") = a, r1 __asm__("x1") = b;
    register long r2 __asm__("x2") = c, r3 __asm__("x3") = d;
    __asm__ volatile("svc #0" : "+r"(r0) : "r"(n), "r"(r1), "r"(r2), "r"(r3) : "memory");
    return r0;
#elif defined(__arm__)
    register long r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c, r3 __asm__("r3") = d;
    /* r7 is Thumb's frame pointer: it may not be an operand. */
    __asm__ volatile("push {r7}\n mov r7, %1\n svc #0\n pop {r7}"
                     : "+r"(r0) : "r"(number), "r"(r1), "r"(r2), "r"(r3) : "memory");
    return r0;
#elif defined(__riscv)
    register long n __asm__("a7") = number, r0 __asm__("a0") = a, r1 __asm__("a1") = b;
    register long r2 __asm__("a2") = c, r3 __asm__("a3") = d, r4 __asm__("a4") = 0;
    __asm__ volatile("ecall" : "+r"(r0) : "r"(n), "r"(r1), "r"(r2), "r"(r3), "r"(r4) : "memory");
    return r0;
#elif defined(__loongarch__)
    register long n __asm__("a7") = number, r0 __asm__("a0") = a, r1 __asm__("a1") = b;
    register long r2 __asm__("a2") = c, r3 __asm__("a3") = d, r4 __asm__("a4") = 0;
    __asm__ volatile("syscall 0" : "+r"(r0) : "r"(n), "r"(r1), "r"(r2), "r"(r3), "r"(r4)
                     : "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "memory");
    return r0;
#elif defined(__mips__)
    register long n __asm__("$2") = number, r0 __asm__("$4") = a, r1 __asm__("$5") = b;
    register long r2 __asm__("$6") = c, r3 __asm__("$7") = d;
#if defined(_ABIO32)
    __asm__ volatile("addiu $29, $29, -32\n sw $0, 16($29)\n syscall\n addiu $29, $29, 32"
#else
    __asm__ volatile("syscall"
#endif
                     : "+r"(n), "+r"(r3) : "r"(r0), "r"(r1), "r"(r2)
                     : "$1", "$3", "$8", "$9", "$10", "$11", "$12", "$13", "$14", "$15", "$24", "$25", "memory");
    return r3 ? -n : n;
#elif defined(__powerpc__)
    register long n __asm__("r0") = number, r3 __asm__("r3") = a, r4 __asm__("r4") = b;
    register long r5 __asm__("r5") = c, r6 __asm__("r6") = d, r7 __asm__("r7") = 0;
    __asm__ volatile("sc\n bns+ 1f\n neg 3, 3\n1:"
                     : "+r"(n), "+r"(r3), "+r"(r4), "+r"(r5), "+r"(r6), "+r"(r7)
                     : : "r8", "r9", "r10", "r11", "r12", "cr0", "ctr", "memory");
    return r3;
#elif defined(__s390x__)
    register long n __asm__("1") = number, r2 __asm__("2") = a, r3 __asm__("3") = b;
    register long r4 __asm__("4") = c, r5 __asm__("5") = d, r6 __asm__("6") = 0;
    __asm__ volatile("svc 0" : "+d"(r2) : "d"(n), "d"(r3), "d"(r4), "d"(r5), "d"(r6) : "memory");
    return r2;
#endif
}

#if defined(__mips__)
#define TRAPCTL_SIGCHLD 18
#else
#define TRAPCTL_SIGCHLD 17
#endif

/* The first argument of clone() is the flags but on s390x, where it is the stack. */
static inline long sys_fork(void)
{
#if defined(__s390x__)
    return sys4(SYS_clone, 0, TRAPCTL_SIGCHLD, 0, 0);
#else
    return sys4(SYS_clone, TRAPCTL_SIGCHLD, 0, 0, 0);
#endif
}

#if defined(__mips__)
__asm__(".text\n.globl __start\n.type __start, @function\n__start:\n" ENTRY);
#elif defined(__thumb__)
__asm__(".text\n.syntax unified\n.thumb\n.thumb_func\n.globl _start\n.type _start, %function\n_start:\n" ENTRY);
#elif defined(__arm__)
__asm__(".text\n.globl _start\n.type _start, %function\n_start:\n" ENTRY);
#else
__asm__(".text\n.globl _start\n.type _start, @function\n_start:\n" ENTRY);
#endif

#endif
