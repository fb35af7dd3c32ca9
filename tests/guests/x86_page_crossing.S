/*
 * Accesses, and an instruction, that cross a page's end. The accesses lie at 0x60000ffd, mapped here.
 */
#include "guest.h"
        .globl  START
        .text
START:  mov     $9, %eax                        /* mmap */
        mov     $0x60000000, %edi
        mov     $8192, %esi
        mov     $3, %edx
        mov     $0x32, %r10d
        mov     $-1, %r8
        xor     %r9, %r9
        syscall
        movabs  $0x1122334455667788, %rax
        movd    %rax, %xmm0
begin:  mov     $0x60000ffd, %edi
store:  mov     %rax, (%rdi)
load:   mov     (%rdi), %rbx
wide:   movups  %xmm0, (%rdi)
wider:  movups  (%rdi), %xmm1
rmw:    lock incl (%rdi)
hop:    jmp     cross
        .balign 4096
        .skip   4094
cross:  mov     $60, %eax                       /* five bytes, two of them before the page's end */
        xor     %edi, %edi
leave:  syscall
end:    nop
