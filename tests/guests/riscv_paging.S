/*
 * A machine without an operating system whose data is not where its addresses say: RV64 on QEMU's `virt`, no firmware. M-mode with MPRV: code is not translated, data is, as S-mode's (Sv39).
 *
 *   0x10000   page `pa`, later `pb`
 *   0x11000   page `pc`
 *   0x12000   the timer's registers
 */
        .option norvc
        .text
        .globl  _start

        .macro  map page, where
        lla     t0, \where
        srli    t0, t0, 12
        slli    t0, t0, 10
        ori     t0, t0, 0xc7        # valid, read, write, accessed, dirty
        lla     t1, leaf + 8 * \page
        sd      t0, 0(t1)
        .endm
        .macro  table entry, where
        lla     t0, \where
        srli    t0, t0, 12
        slli    t0, t0, 10
        ori     t0, t0, 1
        lla     t1, \entry
        sd      t0, 0(t1)
        .endm

_start:
        li      t0, -1
        csrw    pmpaddr0, t0
        li      t0, 0x1f
        csrw    pmpcfg0, t0
        table   root, middle
        table   middle, leaf
        map     0x10, pa
        map     0x11, pc
        li      t0, (0x2004000 >> 2) | 0xc7
        lla     t1, leaf + 8 * 0x12
        sd      t0, 0(t1)
        lla     t0, root
        srli    t0, t0, 12
        li      t1, 8 << 60
        or      t0, t0, t1
        csrw    satp, t0
        sfence.vma
        li      a1, 0x10000
        li      a2, 0x11000
        li      a3, 0x12000
        li      a4, 7
        # MPRV, MPP = S
        li      t2, 0x20800
        csrs    mstatus, t2

first:  sw      a4, 0x10(a1)
cross:  sd      a4, -4(a2)
back:   ld      a5, -4(a2)
atom:   addi    a6, a1, 0x20
amo:    amoadd.w a5, a4, (a6)
resv:   lr.w    a5, (a6)
cond:   sc.w    a7, a4, (a6)
timer:  ld      a5, 0(a3)

        csrc    mstatus, t2
        map     0x10, pb
        sfence.vma
        csrs    mstatus, t2
again:  lw      a5, 0x10(a1)
over:   lw      a5, -2(a2)
plain:  csrc    mstatus, t2
        # The machine's first instructions
rom:    li      t0, 0x1000
        lw      a5, 0(t0)
        li      t0, 0x100000
        li      t1, 0x5555
power:  sw      t1, 0(t0)
hang:   j       hang

        .data
        .balign 4096
root:   .zero   4096
middle: .zero   4096
leaf:   .zero   4096
pa:     .zero   4096
pb:     .zero   4096
pc:     .zero   4096
