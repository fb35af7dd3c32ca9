/* `deep` calls itself until there are 500 of it: 499 run four instructions, the last one three. */
#include "guest.h"
        .globl  START
        .text
        .type   START, @function
START:  mov     $500, %ecx
        call    deep
        EXIT    0
        .size   START, . - START

        .type   deep, @function
deep:   dec     %ecx
        jz      1f
        call    deep
1:      ret
        .size   deep, . - deep
