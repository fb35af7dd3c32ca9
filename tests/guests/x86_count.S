/* 100000 turns of two instructions. */
#include "guest.h"
        .globl  START
        .text
START:  mov     $100000, %ecx
begin:  dec     %ecx
        jnz     begin
done:   EXIT    0
