/*
 * Trapline, from inside: the guest's side of the backdoor.
 *
 *     #include "trapline.h"
 *
 *     trapline_start(TRAPLINE_SCOPE_DEFAULT);
 *     work();
 *     trapline_stop(TRAPLINE_SCOPE_DEFAULT);
 *
 * One file, C99 or C++, nothing to link, no libc, no global; usable in a kernel and in bare-metal code. Every function first
 * executes a no-op of the ISA that Trapline answers. Elsewhere (on the real machine, under KVM, in another emulator) it stays a
 * no-op, and the function gives -TRAPLINE_ENOSYS. So the same binary runs everywhere.
 *
 * -DTRAPLINE_DISABLE leaves nothing behind. -DTRAPLINE_CODE16 is for x86 16-bit code (gcc -m16).
 *
 * Results are at least 0, or a negative TRAPLINE_E*. Texts end with a 0 byte.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TRAPLINE_GUEST_H
#define TRAPLINE_GUEST_H

#if defined(__KERNEL__)
#include <linux/types.h>
typedef u64 trapline_u64;
typedef s64 trapline_s64;
typedef u32 trapline_u32;
typedef s32 trapline_s32;
#else
#include <stdint.h>
typedef uint64_t trapline_u64;
typedef int64_t trapline_s64;
typedef uint32_t trapline_u32;
typedef int32_t trapline_s32;
#endif

/* ---- generated from backdoor/ ---- */

#define TRAPLINE_MAGIC 0x5443
#define TRAPLINE_VERSION 0x00010000
#define TRAPLINE_NAME_MAX 255
#define TRAPLINE_BUFFER_MAX 1048576

#define TRAPLINE_OP_VERSION          0x0000
#define TRAPLINE_OP_FEATURES         0x0001
#define TRAPLINE_OP_ECHO             0x0002
#define TRAPLINE_OP_WHOAMI           0x0003
#define TRAPLINE_OP_START            0x0010
#define TRAPLINE_OP_STOP             0x0011
#define TRAPLINE_OP_SET_DEPTH        0x0012
#define TRAPLINE_OP_STATE            0x0013
#define TRAPLINE_OP_ROI_BEGIN        0x0014
#define TRAPLINE_OP_ROI_END          0x0015
#define TRAPLINE_OP_FILTER_RANGE     0x0016
#define TRAPLINE_OP_SCOPE_ASID       0x0017
#define TRAPLINE_OP_EVENT            0x0020
#define TRAPLINE_OP_DEFINE           0x0021
#define TRAPLINE_OP_MARK             0x0022
#define TRAPLINE_OP_LOG              0x0023
#define TRAPLINE_OP_SEND             0x0024
#define TRAPLINE_OP_RECV             0x0025
#define TRAPLINE_OP_THREAD_NAME      0x0026
#define TRAPLINE_OP_ICOUNT           0x0030
#define TRAPLINE_OP_CLOCK            0x0031
#define TRAPLINE_OP_COUNTER          0x0032
#define TRAPLINE_OP_STATS_DUMP       0x0038
#define TRAPLINE_OP_STATS_RESET      0x0039
#define TRAPLINE_OP_ANALYZER_SELECT  0x0040
#define TRAPLINE_OP_ANALYZER_CALL    0x0041
#define TRAPLINE_OP_ADD_SYMBOL       0x0042
#define TRAPLINE_OP_EXIT             0x0050
#define TRAPLINE_OP_ABORT            0x0051
#define TRAPLINE_OP_BREAK            0x0052
#define TRAPLINE_OP_USER             0x8000

#define TRAPLINE_EPERM   1
#define TRAPLINE_EFAULT  14
#define TRAPLINE_EINVAL  22
#define TRAPLINE_ENOSYS  38

#define TRAPLINE_SCOPE_DEFAULT     0
#define TRAPLINE_SCOPE_VCPU        1
#define TRAPLINE_SCOPE_PROCESS     2
#define TRAPLINE_SCOPE_ALL         3
#define TRAPLINE_CLOCK_MONOTONIC   0
#define TRAPLINE_CLOCK_WALL        1
#define TRAPLINE_CLOCK_VIRTUAL     2
#define TRAPLINE_COUNTER_CALLS     0
#define TRAPLINE_COUNTER_STARTS    1
#define TRAPLINE_FEATURE_USER_MODE 1
#define TRAPLINE_FEATURE_EXIT      2
#define TRAPLINE_FEATURE_RECV      4
#define TRAPLINE_FEATURE_SELECT    8
#define TRAPLINE_FEATURE_ICOUNT    16

#define TRAPLINE_X86_64_CALL ".byte 0x0f, 0xb9, 0xbf, 0x54, 0x43, 0x47, 0x49"
#define TRAPLINE_X86_64_PROBE ".byte 0x0f, 0x1f, 0x80, 0x54, 0x43, 0x47, 0x49"
#define TRAPLINE_I386_CALL ".byte 0x0f, 0xb9, 0xbf, 0x54, 0x43, 0x47, 0x49"
#define TRAPLINE_I386_PROBE ".byte 0x0f, 0x1f, 0x80, 0x54, 0x43, 0x47, 0x49"
#define TRAPLINE_I8086_CALL ".byte 0x67, 0x0f, 0xb9, 0xbf, 0x54, 0x43, 0x47, 0x49"
#define TRAPLINE_I8086_PROBE ".byte 0x67, 0x0f, 0x1f, 0x80, 0x54, 0x43, 0x47, 0x49"
#define TRAPLINE_AARCH64_CALL ".inst 0x00005154"
#define TRAPLINE_AARCH64_PROBE ".inst 0xd28a2a9f"
#define TRAPLINE_A32_CALL ".inst 0xe7f515f4"
#define TRAPLINE_A32_PROBE ".inst 0xe320f054"
#define TRAPLINE_T32_CALL ".inst.w 0xf7f5a154"
#define TRAPLINE_T32_PROBE ".inst.w 0xf3af8054"
#define TRAPLINE_T16_CALL ".inst.n 0xde54"
#define TRAPLINE_T16_PROBE ".inst.w 0xf3af8054"
#define TRAPLINE_RISCV_CALL ".insn i 0x73, 1, x0, x17, -1024"
#define TRAPLINE_RISCV_PROBE ".insn i 0x13, 2, x0, x0, 1300"
#define TRAPLINE_MIPS_CALL ".insn\n\t.long 0x04175154"
#define TRAPLINE_MIPS_PROBE ".insn\n\t.long 0x34005154"
#define TRAPLINE_MICROMIPS_CALL ".insn\n\t.short 0x0014, 0x553f"
#define TRAPLINE_MICROMIPS_PROBE ".insn\n\t.short 0x5000, 0x5154"
#define TRAPLINE_MIPS16_CALL ".insn\n\t.short 0xed55"
#define TRAPLINE_MIPS16_PROBE ".insn\n\t.short 0x6505"
#define TRAPLINE_NANOMIPS_CALL ".insn\n\t.short 0x0000, 0x5154"
#define TRAPLINE_NANOMIPS_PROBE ".insn\n\t.short 0x8000, 0x0154"
#define TRAPLINE_PPC_CALL ".p2align 3\n\t.long 0x00000000, 0x529402b6"
#define TRAPLINE_PPC_PROBE ".p2align 3\n\t.long 0x529402b6"
#define TRAPLINE_S390X_CALL ".insn e,0x00d4"
#define TRAPLINE_S390X_PROBE ".insn ri,0xa7040000,0,0x5154"
#define TRAPLINE_SPARC_CALL ".long 0x00355154"
#define TRAPLINE_SPARC_PROBE ".long 0x01355154"
#define TRAPLINE_LOONGARCH_CALL ".long 0x38605484"
#define TRAPLINE_LOONGARCH_PROBE ".long 0x03455000"
#define TRAPLINE_M68K_CALL ".short 0x4afc, 0x5154"
#define TRAPLINE_M68K_PROBE ".short 0x51fa, 0x5154"
#define TRAPLINE_SH4_CALL ".p2align 2\n\t.short 0xfffd, 0x5154"
#define TRAPLINE_SH4_PROBE ".p2align 2\n\t.short 0x2ee9, 0x2eeb"
#define TRAPLINE_XTENSA_CALL "j 9f\n\t.p2align 3\n9:\t.byte 0x00, 0x00, 0x00, 0x10, 0x11, 0x10"
#define TRAPLINE_XTENSA_PROBE ".byte 0x10, 0x11, 0x10"
#define TRAPLINE_XTENSAEB_CALL "j 9f\n\t.p2align 3\n9:\t.byte 0x00, 0x00, 0x00, 0x01, 0x11, 0x01"
#define TRAPLINE_XTENSAEB_PROBE ".byte 0x01, 0x11, 0x01"
#define TRAPLINE_ALPHA_CALL ".long 0x04005154"
#define TRAPLINE_ALPHA_PROBE ".long 0x23ff5154"
#define TRAPLINE_HPPA_CALL ".long 0xfffd5154"
#define TRAPLINE_HPPA_PROBE ".long 0x340002a8"
#define TRAPLINE_OPENRISC_CALL ".long 0x70005154"
#define TRAPLINE_OPENRISC_PROBE ".long 0x15005154"
#define TRAPLINE_MICROBLAZE_CALL ".long 0xfc005154"
#define TRAPLINE_MICROBLAZE_PROBE ".long 0xa0005154"

/* ---- end of what is generated ---- */

/* ---- the two instructions ---------------------------------------------- */

/* A register, as a number and as a result. */
#if defined(__x86_64__) || defined(__aarch64__) || defined(__mips64) || \
    defined(__powerpc64__) || defined(__s390x__) || defined(__alpha__) || \
    (defined(__riscv) && __riscv_xlen == 64) || defined(__loongarch64) || \
    (defined(__sparc__) && defined(__arch64__))
typedef trapline_u64 trapline_word;
typedef trapline_s64 trapline_result;
#else
typedef trapline_u32 trapline_word;
typedef trapline_s32 trapline_result;
#endif

#if !defined(__GNUC__)
#define TRAPLINE_DISABLE
#endif

/* TRAPLINE_REG(variable, "register") = value; local, so that it is an operand and nothing else. */
#define TRAPLINE_REG(VAR, REG) register trapline_word VAR __asm__(REG)

/*
 * Per ISA: the two instructions, and the registers of command, arguments and result. TRAPLINE_IN_PLACE: the result's register
 * is that of argument 0.
 */
#if defined(TRAPLINE_DISABLE)
/* nothing */
#elif defined(__x86_64__)
#define TRAPLINE_CALL_INSN  TRAPLINE_X86_64_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_X86_64_PROBE
#define TRAPLINE_REGS6 "rax", "rdi", "rsi", "rdx", "r10", "r8", "r9", "rax"
#define TRAPLINE_IN_COMMAND
#elif defined(__i386__)
#ifdef TRAPLINE_CODE16
#define TRAPLINE_CALL_INSN  TRAPLINE_I8086_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_I8086_PROBE
#else
#define TRAPLINE_CALL_INSN  TRAPLINE_I386_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_I386_PROBE
#endif
#define TRAPLINE_REGS4 "eax", "ecx", "edx", "esi", "edi", "eax"
#define TRAPLINE_IN_COMMAND
#elif defined(__aarch64__)
#define TRAPLINE_CALL_INSN  TRAPLINE_AARCH64_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_AARCH64_PROBE
#define TRAPLINE_REGS6 "x8", "x0", "x1", "x2", "x3", "x4", "x5", "x0"
#define TRAPLINE_IN_PLACE
#elif defined(__arm__)
#if !defined(__thumb__)
#define TRAPLINE_CALL_INSN  TRAPLINE_A32_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_A32_PROBE
#elif defined(__thumb2__)
#define TRAPLINE_CALL_INSN  TRAPLINE_T32_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_T32_PROBE
#else
#define TRAPLINE_CALL_INSN  TRAPLINE_T16_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_T16_PROBE
#endif
#define TRAPLINE_REGS6 "r12", "r0", "r1", "r2", "r3", "r4", "r5", "r0"
#define TRAPLINE_IN_PLACE
#elif defined(__riscv)
#define TRAPLINE_CALL_INSN  TRAPLINE_RISCV_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_RISCV_PROBE
#define TRAPLINE_REGS6 "a7", "a0", "a1", "a2", "a3", "a4", "a5", "a0"
#define TRAPLINE_IN_PLACE
#elif defined(__mips__) || defined(__nanomips__)
#if defined(__nanomips__)
#define TRAPLINE_CALL_INSN  TRAPLINE_NANOMIPS_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_NANOMIPS_PROBE
#elif defined(__mips_micromips)
#define TRAPLINE_CALL_INSN  TRAPLINE_MICROMIPS_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_MICROMIPS_PROBE
#elif defined(__mips16)
#define TRAPLINE_CALL_INSN  TRAPLINE_MIPS16_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_MIPS16_PROBE
#else
#define TRAPLINE_CALL_INSN  TRAPLINE_MIPS_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_MIPS_PROBE
#endif
#define TRAPLINE_REGS6 "$2", "$4", "$5", "$6", "$7", "$8", "$9", "$2"
#define TRAPLINE_IN_COMMAND
#elif defined(__powerpc__)
#define TRAPLINE_CALL_INSN  TRAPLINE_PPC_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_PPC_PROBE
#define TRAPLINE_REGS6 "r0", "r3", "r4", "r5", "r6", "r7", "r8", "r3"
#define TRAPLINE_IN_PLACE
#elif defined(__s390x__)
#define TRAPLINE_CALL_INSN  TRAPLINE_S390X_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_S390X_PROBE
#define TRAPLINE_REGS5 "r1", "r2", "r3", "r4", "r5", "r6", "r2"
#define TRAPLINE_IN_PLACE
#elif defined(__sparc__)
#define TRAPLINE_CALL_INSN  TRAPLINE_SPARC_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_SPARC_PROBE
#define TRAPLINE_REGS6 "g1", "o0", "o1", "o2", "o3", "o4", "o5", "o0"
#define TRAPLINE_IN_PLACE
#elif defined(__loongarch__)
#define TRAPLINE_CALL_INSN  TRAPLINE_LOONGARCH_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_LOONGARCH_PROBE
#define TRAPLINE_REGS6 "a7", "a0", "a1", "a2", "a3", "a4", "a5", "a0"
#define TRAPLINE_IN_PLACE
#elif defined(__m68k__)
#define TRAPLINE_CALL_INSN  TRAPLINE_M68K_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_M68K_PROBE
#define TRAPLINE_REGS6 "d0", "d1", "d2", "d3", "d4", "d5", "a0", "d0"
#define TRAPLINE_IN_COMMAND
#elif defined(__sh__)
#define TRAPLINE_CALL_INSN  TRAPLINE_SH4_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_SH4_PROBE
#define TRAPLINE_REGS6 "r3", "r4", "r5", "r6", "r7", "r0", "r1", "r0"
#define TRAPLINE_IN_ARG4
#elif defined(__xtensa__)
#ifdef __XTENSA_EB__
#define TRAPLINE_CALL_INSN  TRAPLINE_XTENSAEB_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_XTENSAEB_PROBE
#else
#define TRAPLINE_CALL_INSN  TRAPLINE_XTENSA_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_XTENSA_PROBE
#endif
#define TRAPLINE_REGS6 "a2", "a6", "a3", "a4", "a5", "a8", "a9", "a2"
#define TRAPLINE_IN_COMMAND
#elif defined(__alpha__)
#define TRAPLINE_CALL_INSN  TRAPLINE_ALPHA_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_ALPHA_PROBE
#define TRAPLINE_REGS6 "$0", "$16", "$17", "$18", "$19", "$20", "$21", "$0"
#define TRAPLINE_IN_COMMAND
#elif defined(__hppa__)
#define TRAPLINE_CALL_INSN  TRAPLINE_HPPA_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_HPPA_PROBE
#define TRAPLINE_REGS6 "r20", "r26", "r25", "r24", "r23", "r22", "r21", "r28"
#elif defined(__or1k__)
#define TRAPLINE_CALL_INSN  TRAPLINE_OPENRISC_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_OPENRISC_PROBE
#define TRAPLINE_REGS6 "r11", "r3", "r4", "r5", "r6", "r7", "r8", "r11"
#define TRAPLINE_IN_COMMAND
#elif defined(__MICROBLAZE__)
#define TRAPLINE_CALL_INSN  TRAPLINE_MICROBLAZE_CALL
#define TRAPLINE_PROBE_INSN TRAPLINE_MICROBLAZE_PROBE
#define TRAPLINE_REGS6 "r12", "r5", "r6", "r7", "r8", "r9", "r10", "r3"
#else
#error "Trapline has no backdoor for this ISA; -DTRAPLINE_DISABLE compiles it away"
#endif

#define TRAPLINE_LAST6_(C, A0, A1, A2, A3, A4, A5, R) R
#define TRAPLINE_LAST5_(C, A0, A1, A2, A3, A4, R) R
#define TRAPLINE_LAST4_(C, A0, A1, A2, A3, R) R
#define TRAPLINE_APPLY_(M, ...) M(__VA_ARGS__)

/* The protocol's version (TRAPLINE_VERSION's form) under Trapline, 0 anywhere else. Costs an instruction: there is no need to keep it. */
static inline trapline_u32 trapline_version(void)
{
#if defined(TRAPLINE_DISABLE)
    return 0;
#else
#if defined(TRAPLINE_REGS6)
    TRAPLINE_REG(r, TRAPLINE_APPLY_(TRAPLINE_LAST6_, TRAPLINE_REGS6)) = 0;
#elif defined(TRAPLINE_REGS5)
    TRAPLINE_REG(r, TRAPLINE_APPLY_(TRAPLINE_LAST5_, TRAPLINE_REGS5)) = 0;
#else
    TRAPLINE_REG(r, TRAPLINE_APPLY_(TRAPLINE_LAST4_, TRAPLINE_REGS4)) = 0;
#endif
    __asm__ __volatile__(TRAPLINE_PROBE_INSN : "+r"(r));
    return (trapline_u32)r;
#endif
}

/* Whether this runs under a Trapline whose operations these are. */
static inline int trapline_present(void)
{
    return trapline_version() >> 16 == TRAPLINE_VERSION >> 16;
}

/* Any operation. Arguments that an ISA has no register for (i386: two, s390x: one) are 0 to Trapline. */
static inline trapline_result trapline_call(unsigned op, trapline_word a0, trapline_word a1, trapline_word a2,
                                            trapline_word a3, trapline_word a4, trapline_word a5)
{
#if defined(TRAPLINE_DISABLE)
    (void)op, (void)a0, (void)a1, (void)a2, (void)a3, (void)a4, (void)a5;
    return -TRAPLINE_ENOSYS;
#else
    if (!trapline_present()) {
        return -TRAPLINE_ENOSYS;
    } else {
#define TRAPLINE_DECLARE6_(C, A0, A1, A2, A3, A4, A5, R) \
        TRAPLINE_REG(c, C) = (trapline_word)TRAPLINE_MAGIC << 16 | op; \
        TRAPLINE_REG(r0, A0) = a0; \
        TRAPLINE_REG(r1, A1) = a1; \
        TRAPLINE_REG(r2, A2) = a2; \
        TRAPLINE_REG(r3, A3) = a3; \
        TRAPLINE_REG(r4, A4) = a4; \
        TRAPLINE_REG(r5, A5) = a5
#define TRAPLINE_DECLARE5_(C, A0, A1, A2, A3, A4, R) \
        TRAPLINE_REG(c, C) = (trapline_word)TRAPLINE_MAGIC << 16 | op; \
        TRAPLINE_REG(r0, A0) = a0; \
        TRAPLINE_REG(r1, A1) = a1; \
        TRAPLINE_REG(r2, A2) = a2; \
        TRAPLINE_REG(r3, A3) = a3; \
        TRAPLINE_REG(r4, A4) = a4
#define TRAPLINE_DECLARE4_(C, A0, A1, A2, A3, R) \
        TRAPLINE_REG(c, C) = (trapline_word)TRAPLINE_MAGIC << 16 | op; \
        TRAPLINE_REG(r0, A0) = a0; \
        TRAPLINE_REG(r1, A1) = a1; \
        TRAPLINE_REG(r2, A2) = a2; \
        TRAPLINE_REG(r3, A3) = a3
#if defined(TRAPLINE_REGS4)
        TRAPLINE_APPLY_(TRAPLINE_DECLARE4_, TRAPLINE_REGS4);
        (void)a4, (void)a5;
        __asm__ __volatile__(TRAPLINE_CALL_INSN : "+r"(c) : "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
        return (trapline_result)c;
#elif defined(TRAPLINE_REGS5)
        TRAPLINE_APPLY_(TRAPLINE_DECLARE5_, TRAPLINE_REGS5);
        (void)a5;
        __asm__ __volatile__(TRAPLINE_CALL_INSN
                             : "+r"(r0) : "r"(c), "r"(r1), "r"(r2), "r"(r3), "r"(r4) : "memory");
        return (trapline_result)r0;
#elif defined(TRAPLINE_IN_COMMAND)
        TRAPLINE_APPLY_(TRAPLINE_DECLARE6_, TRAPLINE_REGS6);
        __asm__ __volatile__(TRAPLINE_CALL_INSN
                             : "+r"(c) : "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
        return (trapline_result)c;
#elif defined(TRAPLINE_IN_PLACE)
        TRAPLINE_APPLY_(TRAPLINE_DECLARE6_, TRAPLINE_REGS6);
        __asm__ __volatile__(TRAPLINE_CALL_INSN
                             : "+r"(r0) : "r"(c), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
        return (trapline_result)r0;
#elif defined(TRAPLINE_IN_ARG4)
        TRAPLINE_APPLY_(TRAPLINE_DECLARE6_, TRAPLINE_REGS6);
        __asm__ __volatile__(TRAPLINE_CALL_INSN
                             : "+r"(r4) : "r"(c), "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(r5) : "memory");
        return (trapline_result)r4;
#else
        TRAPLINE_APPLY_(TRAPLINE_DECLARE6_, TRAPLINE_REGS6);
        TRAPLINE_REG(r, TRAPLINE_APPLY_(TRAPLINE_LAST6_, TRAPLINE_REGS6)) = 0;
        __asm__ __volatile__(TRAPLINE_CALL_INSN
                             : "+r"(r)
                             : "r"(c), "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
        return (trapline_result)r;
#endif
    }
#endif
}

/* ---- the operations ---------------------------------------------------- */

/* An address as an argument. */
#define TRAPLINE_PTR(P) ((trapline_word)(__UINTPTR_TYPE__)(P))
#define TRAPLINE_CALL2(OP, A, B) trapline_call(TRAPLINE_OP_##OP, (A), (B), 0, 0, 0, 0)
#define TRAPLINE_CALL3(OP, A, B, C) trapline_call(TRAPLINE_OP_##OP, (A), (B), (C), 0, 0, 0)

/* TRAPLINE_FEATURE_* bits. */
static inline trapline_result trapline_features(trapline_word word)
{
    return TRAPLINE_CALL2(FEATURES, word, 0);
}

/* a + b: whether calls come through. */
static inline trapline_result trapline_echo(trapline_word a, trapline_word b)
{
    return TRAPLINE_CALL2(ECHO, a, b);
}

/* The vCPU's number << 1, and 1 if it is emulated in user mode. */
static inline trapline_result trapline_whoami(void)
{
    return TRAPLINE_CALL2(WHOAMI, 0, 0);
}

/* Tracing one deeper, from the next instruction on. @scope: TRAPLINE_SCOPE_*. The depth. */
static inline trapline_result trapline_start(trapline_word scope)
{
    return TRAPLINE_CALL2(START, scope, 0);
}

/* Tracing one less deep; the instruction before was the last. The depth; -TRAPLINE_EINVAL if it was not started. */
static inline trapline_result trapline_stop(trapline_word scope)
{
    return TRAPLINE_CALL2(STOP, scope, 0);
}

/* The old depth. */
static inline trapline_result trapline_set_depth(trapline_word scope, trapline_word depth)
{
    return TRAPLINE_CALL2(SET_DEPTH, scope, depth);
}

/* The depth. */
static inline trapline_result trapline_state(trapline_word scope)
{
    return TRAPLINE_CALL2(STATE, scope, 0);
}

/* A region of interest begins. @name may be NULL. */
static inline trapline_result trapline_roi_begin(trapline_word id, const char *name)
{
    return TRAPLINE_CALL2(ROI_BEGIN, id, TRAPLINE_PTR(name));
}

/* It ends. */
static inline trapline_result trapline_roi_end(trapline_word id, const char *name)
{
    return TRAPLINE_CALL2(ROI_END, id, TRAPLINE_PTR(name));
}

/* Only code from @lo up to but not @hi is traced (@within), or all but that; three zeros: all code again. */
static inline trapline_result trapline_filter_range(trapline_word lo, trapline_word hi, int within)
{
    return TRAPLINE_CALL3(FILTER_RANGE, lo, hi, within ? 1u : 0u);
}

/* Only this address space, or any. */
static inline trapline_result trapline_scope_asid(int only_this)
{
    return TRAPLINE_CALL2(SCOPE_ASID, only_this ? 1u : 0u, 0);
}

/* An event with values. On i386 @a3 is 0 to Trapline. */
static inline trapline_result trapline_event(trapline_word id, trapline_word a0, trapline_word a1, trapline_word a2,
                                             trapline_word a3)
{
    return trapline_call(TRAPLINE_OP_EVENT, id, a0, a1, a2, a3, 0);
}

/* The number of events with this name, the same for the same name. */
static inline trapline_result trapline_define(const char *name)
{
    return TRAPLINE_CALL2(DEFINE, TRAPLINE_PTR(name), 0);
}

/* A marker. */
static inline trapline_result trapline_mark(const char *name, trapline_word value)
{
    return TRAPLINE_CALL2(MARK, TRAPLINE_PTR(name), value);
}

/* A line of text. */
static inline trapline_result trapline_log(const char *text, trapline_word length, trapline_word level)
{
    return TRAPLINE_CALL3(LOG, TRAPLINE_PTR(text), length, level);
}

/* Bytes to the consumers; at most TRAPLINE_BUFFER_MAX. */
static inline trapline_result trapline_send(trapline_word channel, const void *bytes, trapline_word length)
{
    return TRAPLINE_CALL3(SEND, channel, TRAPLINE_PTR(bytes), length);
}

/* Bytes from the host, if it allows: their number, 0 at the end. */
static inline trapline_result trapline_recv(trapline_word channel, void *bytes, trapline_word capacity)
{
    return TRAPLINE_CALL3(RECV, channel, TRAPLINE_PTR(bytes), capacity);
}

/* The calling thread's name. */
static inline trapline_result trapline_thread_name(const char *name)
{
    return TRAPLINE_CALL2(THREAD_NAME, TRAPLINE_PTR(name), 0);
}

/* Instructions that this vCPU has retired, if Trapline counts them. */
static inline trapline_result trapline_icount(trapline_u64 *count)
{
    return TRAPLINE_CALL2(ICOUNT, 0, TRAPLINE_PTR(count));
}

/* A clock of the host or of QEMU in ns. @which: TRAPLINE_CLOCK_*. */
static inline trapline_result trapline_clock(trapline_word which, trapline_u64 *ns)
{
    return TRAPLINE_CALL2(CLOCK, which, TRAPLINE_PTR(ns));
}

/* One of Trapline's counters. @which: TRAPLINE_COUNTER_*. */
static inline trapline_result trapline_counter(trapline_word which, trapline_u64 *count)
{
    return TRAPLINE_CALL2(COUNTER, which, TRAPLINE_PTR(count));
}

/* Consumers report what they have so far. @label may be NULL. */
static inline trapline_result trapline_stats_dump(const char *label)
{
    return TRAPLINE_CALL2(STATS_DUMP, TRAPLINE_PTR(label), 0);
}

/* Consumers forget what they have so far. */
static inline trapline_result trapline_stats_reset(const char *label)
{
    return TRAPLINE_CALL2(STATS_RESET, TRAPLINE_PTR(label), 0);
}

/* The number of the analyzer with this name, if the host allows it. */
static inline trapline_result trapline_analyzer_select(const char *name)
{
    return TRAPLINE_CALL2(ANALYZER_SELECT, TRAPLINE_PTR(name), 0);
}

/* To an analyzer: its number, an operation of its own, and bytes. */
static inline trapline_result trapline_analyzer_call(trapline_word id, trapline_word op, const void *bytes,
                                                     trapline_word length)
{
    return trapline_call(TRAPLINE_OP_ANALYZER_CALL, id, op, TRAPLINE_PTR(bytes), length, 0, 0);
}

/* A symbol that no file knows, as a JIT compiler makes them. */
static inline trapline_result trapline_add_symbol(const void *address, trapline_word size, const char *name)
{
    return TRAPLINE_CALL3(ADD_SYMBOL, TRAPLINE_PTR(address), size, TRAPLINE_PTR(name));
}

/* Ends QEMU, if the host allows it; otherwise gives -TRAPLINE_EPERM. */
static inline trapline_result trapline_exit(trapline_word code)
{
    return TRAPLINE_CALL2(EXIT, code, 0);
}

/* The same with a message and exit code 134. */
static inline trapline_result trapline_abort(const char *message)
{
    return TRAPLINE_CALL2(ABORT, TRAPLINE_PTR(message), 0);
}

/* Stops in the debugger that is attached to QEMU, if there is one. */
static inline trapline_result trapline_break(void)
{
    return TRAPLINE_CALL2(BREAK, 0, 0);
}

#endif
