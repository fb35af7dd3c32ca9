/* 100000 turns of two blocks of three instructions: the one loads, the other stores. */
#include "guest.h"
        .globl  START, load, store
        .text
START:  mov     $100000, %ecx
        lea     cell(%rip), %rdi
load:   mov     (%rdi), %rax
        add     $1, %rax
        jmp     store
store:  mov     %rax, (%rdi)
        dec     %ecx
        jnz     load
        EXIT    0
        .bss
cell:   .quad   0
