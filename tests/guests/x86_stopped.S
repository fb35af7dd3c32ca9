/*
 * Starts tracing, calls `body` three times, stops, and calls it a thousand times more. Where nobody answers it begins at `stopped`:
 * so from there on the two must not differ.
 */
#include "guest.h"
        .macro BACKDOOR op
        mov     $0x54430000 + \op, %eax
        xor     %edi, %edi
        .byte   0x0f, 0xb9, 0xbf, 0x54, 0x43, 0x47, 0x49
        .endm

        .globl  START
        .text
START:  xor     %eax, %eax
        .byte   0x0f, 0x1f, 0x80, 0x54, 0x43, 0x47, 0x49
        test    %eax, %eax
        jz      stopped
        BACKDOOR 0x10                           /* START */
        mov     $3, %ebp
1:      call    body
        dec     %ebp
        jnz     1b
        BACKDOOR 0x11                           /* STOP */
stopped:
        mov     $1000, %ebp
1:      call    body
        dec     %ebp
        jnz     1b
        EXIT    0

/* Loads and stores in helpers and in line, atomics, loops, direct and indirect branches, a system call. */
body:   push    %rbx
        lea     buf(%rip), %rbx
        mov     $1, %eax
        lock xadd %eax, (%rbx)
        movups  (%rbx), %xmm0
        movups  %xmm0, 4093(%rbx)
        fxsave  64(%rbx)
        mov     %rbx, %rsi
        lea     2048(%rbx), %rdi
        mov     $20, %ecx
        rep movsb
        mov     $10, %ecx
1:      add     %ecx, 8(%rbx)
        dec     %ecx
        jnz     1b
        lea     2f(%rip), %rax
        jmp     *%rax
2:      test    $1, %ebp
        jz      3f
        incl    16(%rbx)
3:      mov     $39, %eax                       /* getpid */
        syscall
        pop     %rbx
        ret

        .bss
        .balign 4096
buf:    .skip   8192
