/*
 * Code that patches the instruction after itself, called twice; and a routine whose immediate is rewritten before each of 100 calls.
 */
#include "guest.h"
        .globl  START
        .text
START:  mov     $9, %eax                        /* mmap, rwx */
        mov     $0x50000000, %edi
        mov     $4096, %esi
        mov     $7, %edx
        mov     $0x32, %r10d
        mov     $-1, %r8
        xor     %r9, %r9
        syscall
        lea     code(%rip), %rsi
        mov     $0x50000000, %edi
        mov     $(code_end - code), %ecx
        rep movsb
        mov     $0x50000000, %edi
        mov     %rdi, %rbx
        call    *%rbx
first:  mov     %eax, %r12d
        movb    $1, 5(%rbx)                     /* as it was */
        call    *%rbx
second: add     %eax, %r12d                     /* 2 + 2 */

        /* B at +0x100: mov $imm, %eax; ret */
        xor     %r13d, %r13d
        xor     %ecx, %ecx
again:  inc     %ecx
patch:  movb    %cl, 0x101(%rbx)
        lea     0x100(%rbx), %rax
        call    *%rax
        add     %eax, %r13d
        cmp     $100, %ecx
        jne     again
        cmp     $5050, %r13d                    /* the sum of 1 to 100 */
        jne     bad
        cmp     $4, %r12d
        jne     bad
        EXIT    0
bad:    EXIT    1
code:   .byte   0xc6, 0x47, 0x05, 0x02          /* movb $2, 5(%rdi) */
        .byte   0xb8, 0x01, 0x00, 0x00, 0x00    /* mov $1, %eax */
        .byte   0xc3
        .org    code + 0x100
        .byte   0xb8, 0x00, 0x00, 0x00, 0x00    /* mov $0, %eax */
        .byte   0xc3
code_end:
