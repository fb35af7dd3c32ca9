/*
 * A machine without an operating system that stops in the debugger: RV64 on QEMU's `virt`, no firmware.
 */
        .option norvc
        .text
        .globl  _start
_start: li      a0, 1
        # BREAK
        li      a7, 0x54430052
call:   csrw    cycle, a7
broken: addi    a1, a0, 1
        addi    a1, a1, 1
ends:   li      t0, 0x100000
        li      t1, 0x5555
        # What BREAK has returned
        beqz    a0, power
fails:  li      t1, 0x13333
power:  sw      t1, 0(t0)
hang:   j       hang
