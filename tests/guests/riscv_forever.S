/*
 * A machine without an operating system that counts for ever: RV64 on QEMU's `virt`, no firmware.
 */
        .option norvc
        .text
        .globl  _start
_start: lla     a1, buf
        li      a0, 0
turn:   addi    a0, a0, 1
store:  sd      a0, 0(a1)
        j       turn

        .data
        .balign 4096
buf:    .zero   4096
