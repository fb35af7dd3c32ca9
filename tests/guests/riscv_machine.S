/*
 * A machine without an operating system: RV64 on QEMU's `virt`, no firmware.
 *
 * M-mode: a loop; an ecall; a load where nothing is; a timer interrupt while it waits.
 * Then Sv39 page tables that map the memory where it is, U-mode: an ecall, a store to a page that is not mapped and comes again once the handler has mapped it.
 * What traps with the cause of an ecall or of a load goes on after the instruction; a page fault comes again.
 */
        .option norvc
        .text
        .globl  _start
_start:
        la      sp, stack
        la      t0, handler
        csrw    mtvec, t0
        # Everything is allowed to U-mode.
        li      t0, -1
        csrw    pmpaddr0, t0
        li      t0, 0x1f
        csrw    pmpcfg0, t0

        la      a1, buf
        li      a2, 10
begin:  sw      a2, 0(a1)
load:   lw      a3, 0(a1)
        addi    a2, a2, -1
        bnez    a2, begin
done:
call:   ecall
fault:  lw      a3, 0(zero)
after:
        # mtimecmp of hart 0: now
        li      t0, 0x2004000
        sd      zero, 0(t0)
        li      t0, 0x80
        csrs    mie, t0
enable: csrsi   mstatus, 8
wait:   beqz    s1, wait
waited:
        csrw    mie, zero

        # One gigabyte page each: devices, memory.
        la      t0, root
        li      t1, 0xdf            # valid, rwx, user, accessed, dirty
        sd      t1, 0(t0)
        li      t1, (0x80000000 >> 2) | 0xdf
        sd      t1, 16(t0)
        srli    t0, t0, 12
        li      t1, (8 << 60) | (5 << 44)
        or      t0, t0, t1
paging: csrw    satp, t0
        sfence.vma
        la      t0, user
        csrw    mepc, t0
        # MPP = U
        li      t0, 0x1800
        csrc    mstatus, t0
leave:  mret

user:   li      a1, 0x40000000
        li      a2, 77
        la      a3, buf
ucall:  ecall
ustore: sw      a2, 0(a3)
retry:  sw      a2, 0x40(a1)
stored: ecall
        # The handler ends the machine at the third call.

        .balign 4
handler:
        csrr    t2, mcause
        bltz    t2, timer
        li      t3, 15
        beq     t2, t3, map
        addi    s0, s0, 1
        li      t3, 4
        beq     s0, t3, end
        csrr    t3, mepc
        addi    t3, t3, 4
        csrw    mepc, t3
        mret
map:    # the gigabyte at 0x40000000 is the memory
        la      t3, root
        li      t4, (0x80000000 >> 2) | 0xdf
        sd      t4, 8(t3)
        sfence.vma
mapped: mret
timer:  li      s1, 1
        # Once.
        csrw    mie, zero
tdone:  mret
end:    li      t0, 0x100000
        li      t1, 0x5555
power:  sw      t1, 0(t0)
hang:   j       hang

        .data
        .balign 4096
root:   .zero   4096
buf:    .zero   4096
        .zero   4096
stack:
