/* Sixteen bytes from standard input, and a load of the first of them. */
#include "guest.h"

        .globl  START, read, load, done
START:
        xor     %eax, %eax
        xor     %edi, %edi
        mov     $buffer, %esi
        mov     $16, %edx
read:   syscall
load:   movb    buffer, %al
done:   EXIT    0

        .bss
        .globl  buffer
        .balign 64
buffer: .skip   64
