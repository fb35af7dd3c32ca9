/*
 * Conditional branches taken and not, calls direct and indirect, returns, a jump through memory.
 */
#include "guest.h"
        .globl  START
        .text
START:  lea     sub(%rip), %rax
        xor     %ecx, %ecx
begin:  test    %ecx, %ecx
nottak: jnz     wrong
taken:  jz      over
wrong:  ud2
over:   call    sub
icall:  call    *%rax
mcall:  call    *ptr(%rip)
mjmp:   jmp     *ptr2(%rip)
        ud2
last:   nop
done:   EXIT    0
sub:    nop
ret:    ret
end:    nop
        .data
        .balign 8
ptr:    .quad   sub
ptr2:   .quad   last
