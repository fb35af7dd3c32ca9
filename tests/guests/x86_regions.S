/*
 * A region of interest "busy" within `outer`: what it costs, by hand. The stack is one cache line, as is each function and each datum.
 *
 *              in the region               outside
 *   _start     -                           5 instructions, called once; 1 access
 *   outer      1 + 3 * 10 + 2 = 33         4 + 2 = 6, called once; 2 accesses
 *              10 accesses
 *   leaf       3 * 10, called 10 times     3, called once; 3 accesses
 *              30 accesses
 *
 * The call that opens a region is outside of it, the one that closes it within.
 */
        .macro BACKDOOR
        .byte   0x0f, 0xb9, 0xbf, 0x54, 0x43, 0x47, 0x49
        .endm

        .macro function name
        .globl \name
        .type \name, @function
\name:
        .endm

        .text
        .p2align 6
        function _start
        lea     stack(%rip), %rsp
        call    outer
        mov     $60, %eax               /* exit */
        xor     %edi, %edi
        syscall
        .size _start, . - _start

        .p2align 6
        function outer
        mov     $0x54430014, %eax        /* ROI_BEGIN */
        mov     $1, %edi
        lea     name(%rip), %rsi
        BACKDOOR
        mov     $10, %ecx
1:      call    leaf
        dec     %ecx
        jnz     1b
        mov     $0x54430015, %eax        /* ROI_END */
        BACKDOOR
        call    leaf
        ret
        .size outer, . - outer

        .p2align 6
        function leaf
        mov     data(%rip), %rdx
        mov     data + 64(%rip), %rdx
        ret
        .size leaf, . - leaf

        .section .rodata
name:   .asciz "busy"

        .bss
        .p2align 6
data:   .skip 128
        .skip 64
stack:
