/*
 * What QEMU and an analyzer share: the one header of both.
 *
 * The QEMU patch includes it, bindgen reads it for the Rust side, and an
 * analyzer in C or C++ may include it too. Layouts are asserted on both sides.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef TRAPLINE_H
#define TRAPLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Bump on every change below. The number is part of a symbol that the library
 * defines and QEMU refers to, so that a mismatch is a link error naming it.
 */
#define TRAPLINE_ABI 4
#define TRAPLINE_ABI_SYMBOL trapline_abi_version_4
extern const uint32_t TRAPLINE_ABI_SYMBOL;

/*
 * A vCPU's part of the stream, inside CPUState where generated code reaches it.
 * Its size is a multiple of 16: nothing moves that stands behind it.
 * @cursor: where the next record goes. Generated code advances it at the start
 *          of a block by the block's whole length.
 * @limit: a block may start while cursor < limit; 0 sends it to the slow path.
 * @context: what the running helper works for: block:32 | insn:16 | done:8 |
 *           TRAPLINE_CONTEXT_*:8; 0 outside helpers of traced instructions.
 * @stream: the writer's state.
 * @slots: the analyzer's words of this vCPU (counters and the like).
 * @pc: where an analyzer's function was called that may look at the vCPU.
 * @lazy: what QEMU's registers lack there (x86: how flags are represented).
 * @left_block, @left_insn: where unwinding found that a block was left;
 *                          @left_insn is the instruction's index plus 1.
 * @index: number of the vCPU in its process.
 * @traced: how deep tracing is started: if it is not 0, the vCPU's blocks are
 *          translated with points.
 * @left: instructions until the window ends or begins; see trapline_window().
 * @counted: what @left was set to, all together: @counted - @left retired.
 * @window: the window that is open or comes.
 * @calls, @starts: what the guest did through the backdoor, for COUNTER.
 * @left_pc: where the vCPU was when it last left QEMU's execution loop.
 * @number: the interrupt that is being delivered, or -1.
 * @changes: TRAPLINE_CHANGE_*.
 * @root, @asid: the address space, as trapline_context() was told last.
 * @physical: of the access that trapline_access() is told of, if it is flagged
 *            so: address | TRAPLINE_PHYSICAL_* of its first byte, and of the
 *            next page's first if it reaches there; 0 if not known.
 * @elsewhere: not 0: it runs an address space or a process that is not to be
 *             traced, whatever @traced says.
 */
typedef struct TraplineVcpu {
    uint64_t *cursor;
    uint64_t *limit;
    uint64_t context;
    void *stream;
    uint64_t *slots;
    uint64_t pc;
    uint32_t left_block;
    uint32_t left_insn;
    uint32_t index;
    uint32_t traced;
    uint32_t lazy;
    uint32_t window;
    int64_t left;
    uint64_t counted;
    uint32_t calls;
    uint32_t starts;
    uint64_t left_pc;
    int32_t number;
    uint32_t changes;
    uint64_t root;
    uint64_t asid;
    uint64_t physical[2];
    uint32_t elsewhere;
    uint32_t reserved[3];
} TraplineVcpu;

/* Full system: what is told when the vCPU executes again. */
#define TRAPLINE_CHANGE_RESET  1u /* it was reset */
#define TRAPLINE_CHANGE_LEFT   2u /* @left_pc is valid */
#define TRAPLINE_CHANGE_HALTED 4u
#define TRAPLINE_CHANGE_PCREL  8u /* its blocks are pc-relative if not traced */

/* What is at a physical address. Addresses have 56 bits. */
#define TRAPLINE_PHYSICAL_RAM (1ull << 56)
#define TRAPLINE_PHYSICAL_ROM (2ull << 56)
#define TRAPLINE_PHYSICAL_IO  (3ull << 56)

/* Set in the block numbers of @context and @left_block: it has no words. */
#define TRAPLINE_BLOCK_UNTRACED (1u << 31)

#define TRAPLINE_CONTEXT_LOAD        1u
#define TRAPLINE_CONTEXT_STORE       2u
#define TRAPLINE_CONTEXT_LOAD_VALUE  4u
#define TRAPLINE_CONTEXT_STORE_VALUE 8u
#define TRAPLINE_CONTEXT_LOAD_ACTIONS  16u
#define TRAPLINE_CONTEXT_STORE_ACTIONS 32u
#define TRAPLINE_CONTEXT_LOAD_PADDR  64u
#define TRAPLINE_CONTEXT_STORE_PADDR 128u

/* ---- the points: called while translating ---------------------------- */

/*
 * An instruction.
 * @pc: guest virtual address, without mode bits.
 * @bytes: its @length opcode bytes in memory order.
 * @index: its number in the block.
 * @flags: TRAPLINE_MODE_*.
 */
typedef struct TraplineInsn {
    uint64_t pc;
    const uint8_t *bytes;
    uint32_t length;
    uint32_t index;
    uint32_t flags;
    uint32_t reserved;
} TraplineInsn;

#define TRAPLINE_MODE_ALT    1u /* Thumb, microMIPS, MIPS16 */
#define TRAPLINE_MODE_CODE16 2u /* x86 */
#define TRAPLINE_MODE_CODE32 4u /* x86; AArch32 where AArch64 is possible */
/* Full system. The level is the ISA's: CPL, EL, mode, PLV, problem state. */
#define TRAPLINE_MODE_USER        8u /* without privileges */
#define TRAPLINE_MODE_LEVEL_KNOWN 16u
#define TRAPLINE_MODE_LEVEL_SHIFT 8 /* three bits */

/*
 * A memory access of an instruction.
 * @size: bytes; 0 if only the helper that makes it knows.
 * @flags: TRAPLINE_ACCESS_*.
 */
typedef struct TraplineAccess {
    const TraplineInsn *insn;
    uint32_t size;
    uint32_t flags;
} TraplineAccess;

/* The same bits as in the stream and the block table (pipe's layout.rs). */
#define TRAPLINE_ACCESS_STORE       (1u << 0)
#define TRAPLINE_ACCESS_SIGNED      (1u << 1)
#define TRAPLINE_ACCESS_BIG_ENDIAN  (1u << 2)
#define TRAPLINE_ACCESS_ATOMIC      (1u << 3)
#define TRAPLINE_ACCESS_VALUE       (1u << 4)
#define TRAPLINE_ACCESS_OPTIONAL    (1u << 5)
#define TRAPLINE_ACCESS_FOOTPRINT   (1u << 6)
#define TRAPLINE_ACCESS_PADDR       (1u << 7)
/* To the analyzer only: made in a helper, if at all. */
#define TRAPLINE_ACCESS_HELPER      (1u << 16)

/*
 * A condition of an action, evaluated inline when the point is reached.
 * @kind: TRAPLINE_IF_*.
 * @compare: TRAPLINE_COMPARE_*, unsigned; for SLOT and VARIABLE.
 */
typedef struct TraplineCondition {
    uint32_t kind;
    uint32_t compare;
    uint64_t a;
    uint64_t b;
} TraplineCondition;

#define TRAPLINE_IF_SLOT     1u /* slot @a compared with @b */
#define TRAPLINE_IF_VARIABLE 2u /* the uint64_t at host address @a with @b */
#define TRAPLINE_IF_RANGE    3u /* the accessed address is in @a .. @a + @b */
#define TRAPLINE_IF_MASKED   4u /* the accessed address & @a is @b */
#define TRAPLINE_IF_EVERY    5u /* slot @a counts to @b and begins anew */
#define TRAPLINE_IF_RANDOM   6u /* @b of 2^32 times; slot @a is the state */

#define TRAPLINE_COMPARE_EQ 0u
#define TRAPLINE_COMPARE_NE 1u
#define TRAPLINE_COMPARE_LT 2u
#define TRAPLINE_COMPARE_GE 3u
#define TRAPLINE_COMPARE_LE 4u
#define TRAPLINE_COMPARE_GT 5u

/* Slot @a of IF_RANDOM is multiplied and added to; the upper half is used. */
#define TRAPLINE_RANDOM_MUL 6364136223846793005u
#define TRAPLINE_RANDOM_ADD 1442695040888963407u

/* An argument of a function to call: one uint64_t. @kind: TRAPLINE_ARG_*. */
typedef struct TraplineArg {
    uint32_t kind;
    uint32_t reg;
    uint64_t value;
} TraplineArg;

#define TRAPLINE_ARG_CONST      0u
#define TRAPLINE_ARG_PC         1u
#define TRAPLINE_ARG_ADDR       2u
#define TRAPLINE_ARG_SIZE       3u
#define TRAPLINE_ARG_VALUE      4u /* its lower 64 bits */
#define TRAPLINE_ARG_VALUE_HIGH 5u
#define TRAPLINE_ARG_REGISTER   6u /* @reg; the lower 64 bits */

#define TRAPLINE_MAX_ARGS       6
#define TRAPLINE_MAX_CONDITIONS 4

/*
 * Something to do when the point is reached.
 * @kind: TRAPLINE_DO_*.
 * @flags: TRAPLINE_ACTION_*.
 * @slot, @n: COUNT adds @n to it.
 * @helper: CALL: void (*)(TraplineVcpu *, uint64_t × @n_args).
 */
typedef struct TraplineAction {
    uint32_t kind;
    uint32_t flags;
    uint32_t slot;
    uint16_t n_args;
    uint16_t n_conditions;
    uint64_t n;
    void *helper;
    TraplineArg args[TRAPLINE_MAX_ARGS];
    TraplineCondition conditions[TRAPLINE_MAX_CONDITIONS];
} TraplineAction;

#define TRAPLINE_DO_COUNT 1u
#define TRAPLINE_DO_CALL  2u
#define TRAPLINE_DO_TRACE 3u /* with conditions; without, see @wants */
#define TRAPLINE_DO_REGS  4u /* registers of set @slot go to the stream */

/* Before an access (else after it); after an instruction (else before it). */
#define TRAPLINE_ACTION_BEFORE 1u
#define TRAPLINE_ACTION_AFTER  2u
/* What the called function may look at, and change. */
#define TRAPLINE_ACTION_READS  4u
#define TRAPLINE_ACTION_WRITES 8u

/*
 * The cursor of a point: what the analyzer asks for.
 * @add: makes one more action, zeroed; valid until the next is made.
 */
typedef struct TraplinePoint {
    uint32_t wants;
    uint32_t n_actions;
    TraplineAction *(*add)(struct TraplinePoint *point);
} TraplinePoint;

#define TRAPLINE_WANT_TRACE 1u
#define TRAPLINE_WANT_VALUE 2u
#define TRAPLINE_WANT_ONCE  4u
#define TRAPLINE_WANT_PADDR 8u /* full system */

/* Filled in by an analyzer; one that it leaves out is not called at all. */
void trapline_point_fetch(const TraplineInsn *insn, TraplinePoint *point);
void trapline_point_mem(const TraplineAccess *access, TraplinePoint *point);

/* The rarer points, called while running, after their event is written. */
void trapline_point_vcpu_start(TraplineVcpu *vcpu);
void trapline_point_vcpu_exit(TraplineVcpu *vcpu, int code);
void trapline_point_fork(TraplineVcpu *vcpu, int pid);
void trapline_point_exec(TraplineVcpu *vcpu, const char *path);
void trapline_point_exit(TraplineVcpu *vcpu, int reason, int code);
void trapline_point_syscall(TraplineVcpu *vcpu, uint64_t pc, int64_t number,
                            const uint64_t args[8]);
void trapline_point_syscall_ret(TraplineVcpu *vcpu, int64_t number,
                                int64_t result);
void trapline_point_kernel_access(TraplineVcpu *vcpu, uint64_t addr,
                                  uint64_t length, uint32_t flags);
void trapline_point_signal(TraplineVcpu *vcpu, int number, uint64_t from,
                           uint64_t to);
void trapline_point_exception(TraplineVcpu *vcpu, int number, uint64_t from,
                              uint64_t to);
void trapline_point_interrupt(TraplineVcpu *vcpu, int number, uint64_t from,
                              uint64_t to);
void trapline_point_context(TraplineVcpu *vcpu, uint64_t root, uint64_t asid);
void trapline_point_mmap(TraplineVcpu *vcpu, uint64_t addr, uint64_t length,
                         int prot, int flags, uint64_t offset, int fd);
void trapline_point_munmap(TraplineVcpu *vcpu, uint64_t addr,
                           uint64_t length);
void trapline_point_mprotect(TraplineVcpu *vcpu, uint64_t addr,
                             uint64_t length, int prot);
void trapline_point_image(TraplineVcpu *vcpu, uint64_t entry, uint64_t bias,
                          uint64_t brk, const char *path);

/* ---- what an analyzer's functions may do with a vCPU: QEMU's side ----- */

/* The number of a register by its name in QEMU's gdbstub, or -1. */
int trapline_register(const char *name);
/* Number @reg's name, or NULL past the last. */
const char *trapline_register_name(unsigned reg);
/*
 * Reads at most @size bytes, in the guest's byte order; returns the number of
 * bytes that the register has, 0 if it cannot be read.
 */
unsigned trapline_read_register(TraplineVcpu *vcpu, unsigned reg,
                                uint8_t *bytes, unsigned size);
/* Only registers that decide neither control flow nor translation. */
bool trapline_write_register(TraplineVcpu *vcpu, unsigned reg,
                             const uint8_t *bytes, unsigned size);
bool trapline_read_memory(TraplineVcpu *vcpu, uint64_t addr, uint8_t *bytes,
                          uint64_t length);
/* The block that runs is the last before QEMU's main loop. */
void trapline_end_block(TraplineVcpu *vcpu);
/* Calls trapline_follow() with START or STOP when the block has ended. */
void trapline_set_traced(TraplineVcpu *vcpu, bool traced);
/* Ends QEMU as if the guest had called exit_group. */
void trapline_request_exit(TraplineVcpu *vcpu, int code);
/* Translations of the addresses from @first to @last are made anew. */
void trapline_retranslate(TraplineVcpu *vcpu, uint64_t first, uint64_t last);

/* ---- the block table -------------------------------------------------- */

typedef struct TraplineBlockInsn {
    uint64_t pc;
    uint32_t length;
    uint32_t wants;
} TraplineBlockInsn;

typedef struct TraplineBlockAccess {
    uint16_t insn;
    uint16_t slot;
    uint16_t size;
    uint16_t flags;
} TraplineBlockAccess;

typedef struct TraplineBlock {
    uint64_t pc;
    uint32_t flags;
    uint16_t n_insns;
    uint16_t n_accesses;
    uint16_t slot_words;
    uint16_t code_length;
    uint32_t reserved;
    const TraplineBlockInsn *insns;
    const TraplineBlockAccess *accesses;
    const uint8_t *code;
} TraplineBlock;

/* Describes a block; returns its id, the same for an identical block. */
uint32_t trapline_block(const TraplineBlock *block);

/* ---- called while running -------------------------------------------- */

/*
 * What QEMU tells at start.
 * @target: its name for the guest's ISA.
 * @start_traced: set by trapline_init: vCPUs begin with tracing on.
 * @system: the guest is a whole machine.
 * @syscall_name: the name of a system call, NULL if it has none; itself NULL in
 *                a whole machine.
 */
typedef struct TraplineHost {
    const char *target;
    const char *qemu_version;
    const char *program;
    uint8_t guest_word;
    uint8_t guest_big_endian;
    bool start_traced;
    bool system;
    uint8_t reserved[4];
    const char *(*syscall_name)(int64_t number);
} TraplineHost;

/* Room left after @limit in a chunk; longer blocks check for themselves. */
#define TRAPLINE_CHUNK_SLACK 4096

/*
 * @options: as given to -trapline. Ends QEMU with a message if bad, or with a
 * description of the analyzer if "help".
 */
void trapline_init(TraplineHost *host, const char *options);

/* The slow path at a block's start: makes room for @bytes. */
void trapline_refill(TraplineVcpu *vcpu, uint32_t bytes);

/* An access in a helper or a loop; @context as in TraplineVcpu. */
void trapline_access(TraplineVcpu *vcpu, uint64_t context, uint64_t addr,
                     uint32_t size, uint32_t flags, uint64_t value_low,
                     uint64_t value_high);

/*
 * A fetch of instruction @insn adds @n to @slot; @merged if at the block's
 * start. It is taken back if the block is left before the instruction retires.
 */
typedef struct TraplineCount {
    uint32_t insn;
    uint32_t slot;
    uint64_t n;
    uint64_t merged;
} TraplineCount;

void trapline_block_counts(uint32_t block, const TraplineCount *counts,
                           unsigned count);
/* Actions at the loads or stores that helpers make for an instruction. */
void trapline_block_actions(uint32_t block, uint32_t insn, bool store,
                            const TraplineAction *actions, unsigned count);

/* A set of registers goes to the stream. */
void trapline_regs(TraplineVcpu *vcpu, uint32_t block, uint32_t insn,
                   uint32_t set);

/* A vCPU's own thread begins. */
void trapline_vcpu_start(TraplineVcpu *vcpu);

/* Where it is remembered that point @index of @block has been passed. */
uint8_t *trapline_once_flag(uint32_t block, uint32_t index);

/*
 * @count instructions with a `once` point are reached, perhaps for the first
 * time. Returns whether the code from @first to @last is to be translated
 * anew: it has been reached TRAPLINE_ONCE_HOT times.
 */
#define TRAPLINE_ONCE_HOT 64
bool trapline_once(TraplineVcpu *vcpu, uint32_t block, uint32_t insn,
                   uint32_t count, bool traced, uint64_t *first,
                   uint64_t *last);
/* An instruction whose execution a condition chose. */
void trapline_chosen(TraplineVcpu *vcpu, uint32_t block, uint32_t insn,
                     bool traced);

/* A block was left by longjmp; @reexec: the guest saw nothing of it. */
void trapline_left(TraplineVcpu *vcpu, bool reexec);

/* After an exception: the instruction retired if the guest goes on at @pc. */
void trapline_resume_pc(TraplineVcpu *vcpu, uint64_t pc);

/* Returns the pc of the instruction, which @pc may be past. */
uint64_t trapline_syscall(TraplineVcpu *vcpu, uint64_t pc, int64_t number,
                          const uint64_t args[8]);
void trapline_syscall_ret(TraplineVcpu *vcpu, int64_t number, int64_t result);

/*
 * What the kernel touches in a system call, or when it delivers a signal, on
 * the calling thread: noted as QEMU locks and unlocks it, and then told.
 * @length: in bytes; not 0.
 * @flags: TRAPLINE_KERNEL_*; READ | WRITE is locked for both.
 */
void trapline_kernel_locked(uint64_t addr, uint64_t length, uint32_t flags);
/* Of what was locked for writing at @addr, @length bytes were written. */
void trapline_kernel_unlocked(uint64_t addr, uint64_t length);
/* Of the data locked so far, @length bytes were moved; none if negative. */
void trapline_kernel_moved(int64_t length);

#define TRAPLINE_KERNEL_READ    1u
#define TRAPLINE_KERNEL_WRITE   2u
#define TRAPLINE_KERNEL_DATA    4u /* as much of it as the call moves */
#define TRAPLINE_KERNEL_UNKNOWN 8u /* it may touch memory from there on */

/* @flags: READ or WRITE, or UNKNOWN and a length of 0. */
typedef struct TraplineKernel {
    uint64_t addr;
    uint64_t length;
    uint32_t flags;
    uint32_t reserved;
} TraplineKernel;

/*
 * The next of what has been noted goes to the stream; false if there is no
 * more. @result: the call's.
 */
bool trapline_kernel_next(TraplineVcpu *vcpu, int64_t result,
                          TraplineKernel *touched);

void trapline_signal(TraplineVcpu *vcpu, int number, uint64_t from,
                     uint64_t to);
/*
 * Full system. @number: the ISA's or, where it has none, QEMU's own; -1 if it
 * is not known. @from: where the guest would have gone on.
 */
void trapline_exception(TraplineVcpu *vcpu, int number, uint64_t from,
                        uint64_t to);
void trapline_interrupt(TraplineVcpu *vcpu, int number, uint64_t from,
                        uint64_t to);
/*
 * The address space is another: physical address of its page tables, 0 where
 * there is none. Returns whether trapline_follow() is to be called with PLACE.
 */
bool trapline_context(TraplineVcpu *vcpu, uint64_t root, uint64_t asid);
/* The pc was set from outside. */
void trapline_moved(TraplineVcpu *vcpu, uint32_t reason, uint64_t from,
                    uint64_t to);
#define TRAPLINE_MOVED_OTHER 0u
#define TRAPLINE_MOVED_RESET 1u
void trapline_halt(TraplineVcpu *vcpu, bool resumed, uint64_t pc);

/* @fd: the mapped file, or -1. */
void trapline_mmap(TraplineVcpu *vcpu, uint64_t addr, uint64_t length,
                   int prot, int flags, uint64_t offset, int fd);
void trapline_munmap(TraplineVcpu *vcpu, uint64_t addr, uint64_t length);
void trapline_mprotect(TraplineVcpu *vcpu, uint64_t addr, uint64_t length,
                       int prot);
/*
 * A mapping was moved or got another length, or (@old_length 0) exists a
 * second time.
 */
typedef struct TraplineRemap {
    uint64_t unmapped;
    uint64_t unmapped_length;
    uint64_t mapped;
    uint64_t mapped_length;
    uint64_t offset;
    int32_t prot;
    int32_t flags;
} TraplineRemap;
void trapline_mremap(TraplineVcpu *vcpu, uint64_t old_addr,
                     uint64_t old_length, uint64_t new_addr,
                     uint64_t new_length, TraplineRemap *done);
void trapline_image(TraplineVcpu *vcpu, uint64_t entry, uint64_t bias,
                    uint64_t brk, const char *path);

/* A thread ends by itself. */
void trapline_vcpu_exit(TraplineVcpu *vcpu, int code);
/* The process ends: every vCPU, none of them in generated code. */
void trapline_process_exit(TraplineVcpu *vcpu, int reason, int code);
#define TRAPLINE_END_EXIT   1
#define TRAPLINE_END_SIGNAL 2
#define TRAPLINE_END_EXEC   3

void trapline_fork_prepare(TraplineVcpu *vcpu);
/* @pid: as fork() returned it. */
void trapline_fork_done(TraplineVcpu *vcpu, int pid);

/*
 * Before execve(): the arguments that start QEMU again on @path with this
 * process's options (NULL if children are not followed).
 * @args: the guest's, NULL-terminated. The result is freed by
 * trapline_exec_failed(), which also undoes what was prepared.
 */
char **trapline_exec(TraplineVcpu *vcpu, const char *path,
                     char *const *args, char *const *extra);
void trapline_exec_failed(TraplineVcpu *vcpu, char **args);

/* ---- the backdoor ------------------------------------------------------ */

/*
 * What the guest asks through the backdoor.
 * @pc: of the call.
 * @args: zero-extended from the guest's word.
 * @data: the text or bytes that the operation takes, read from the guest; or
 *        where to put what it gives; NULL if there is none.
 * @length: of @data in bytes.
 * @context: as in TraplineVcpu: the traced block that the call is in.
 * @result: not 0 on entry if guest memory could not be accessed; the call's.
 * @clock: QEMU's virtual clock in ns, for CLOCK.
 * @op: bits 15:0 of the command.
 * @actions: TRAPLINE_ACT_*, what is left to do for QEMU; @action says more.
 * @system: the guest is a whole system.
 */
typedef struct TraplineCall {
    uint64_t pc;
    uint64_t args[6];
    uint8_t *data;
    uint64_t length;
    uint64_t context;
    int64_t result;
    int64_t clock;
    uint64_t action;
    uint32_t op;
    uint32_t actions;
    uint32_t system;
    uint32_t reserved;
} TraplineCall;

/* Every other vCPU calls trapline_follow() with @action. */
#define TRAPLINE_ACT_OTHERS 1u
/* Translated code is out of date. */
#define TRAPLINE_ACT_FLUSH  2u
/* QEMU ends with exit code @action. */
#define TRAPLINE_ACT_EXIT   4u
/* The debugger takes over. */
#define TRAPLINE_ACT_BREAK  8u

/* Whether calls are decoded; @user: those of user code in full system. */
bool trapline_backdoor_enabled(bool user);

/* Afterwards the vCPU's @traced says how it is to be translated. */
void trapline_backdoor(TraplineVcpu *vcpu, TraplineCall *call);

#define TRAPLINE_FOLLOW_START 4u
#define TRAPLINE_FOLLOW_STOP  5u
/* @elsewhere is set anew, as the address space that runs says. */
#define TRAPLINE_FOLLOW_PLACE 6u
/*
 * @traced changes between blocks, as another vCPU's call or the analyzer asked;
 * the vCPU goes on at @pc.
 */
void trapline_follow(TraplineVcpu *vcpu, uint64_t action, uint64_t pc);

/* A vCPU begins: sets @traced and what is counted. */
void trapline_vcpu_created(TraplineVcpu *vcpu);

/* Instructions are counted: blocks take theirs off @left. */
bool trapline_counts(void);

/*
 * Nothing is left: the window begins or ends with the instruction at @pc.
 * Sets @left, and @traced.
 */
void trapline_window(TraplineVcpu *vcpu, uint64_t pc);

/*
 * The lowest descriptor of ours that is not below @from, or -1: the guest must
 * not close or replace it.
 */
int trapline_next_own_fd(int from);

#ifdef __cplusplus
}
#endif

#endif
