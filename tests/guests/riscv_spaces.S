/*
 * A machine without an operating system that goes from one address space to another: RV64 on QEMU's `virt`, no firmware. M-mode is not translated, so the page tables may be empty.
 */
        .option norvc
        .text
        .globl  _start
_start:
        la      t0, first
        srli    t0, t0, 12
        li      t1, 8 << 60
        or      s0, t0, t1
        la      t0, second
        srli    t0, t0, 12
        or      s1, t0, t1
entera: csrw    satp, s0
        # SCOPE_ASID: only this one
        li      a7, 0x54430017
        li      a0, 1
only:   csrw    cycle, a7
        addi    a1, zero, 1
        addi    a1, a1, 1
leavea: csrw    satp, s1
inb:    addi    a1, a1, 1
        addi    a1, a1, 1
        addi    a1, a1, 1
leaveb: csrw    satp, s0
backa:  addi    a1, a1, 1
        mv      s2, a0
        # SCOPE_ASID: any
        li      a7, 0x54430017
        li      a0, 0
any:    csrw    cycle, a7
toboth: csrw    satp, s1
both:   addi    a1, a1, 1
        or      s2, s2, a0
        # What the calls have returned: 0 ends QEMU well, anything else does not.
        li      t0, 0x100000
        li      t1, 0x5555
        beqz    s2, power
skip:   li      t1, 0x13333
power:  sw      t1, 0(t0)
hang:   j       hang

        .data
        .balign 4096
first:  .zero   4096
second: .zero   4096
