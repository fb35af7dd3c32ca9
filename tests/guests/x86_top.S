/*
 * Loads at the very end of what a program can map.
 */
#include "guest.h"
        .globl  START
        .text
#ifdef __x86_64__
START:  mov     $9, %eax
        movabs  $0x7fffffffe000, %rdi
        mov     $4096, %esi
        mov     $3, %edx
        mov     $0x32, %r10d
        mov     $-1, %r8
        xor     %r9, %r9
        syscall
        movabs  $0x7fffffffeff8, %rdi
        cmp     $0, %rax
        jl      bad
begin:  mov     (%rdi), %rax
done:   EXIT    0
#else
START:  mov     $192, %eax                      /* mmap2 */
        mov     $0xffffc000, %ebx
        mov     $4096, %ecx
        mov     $3, %edx
        mov     $0x32, %esi
        mov     $-1, %edi
        xor     %ebp, %ebp
        int     $0x80
        mov     $0xffffcffc, %edi
        cmp     $0xffffc000, %eax
        jne     bad
begin:  mov     (%edi), %eax
done:   EXIT    0
#endif
bad:    EXIT    9
