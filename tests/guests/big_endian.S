/*
 * Stores and loads of every size: the value of an event is the number that the program sees.
 */
#include "guest.h"
        .globl  START
        .text
#if defined(__mips__)
        .set    noreorder
START:  lui     $a0, %hi(buf)
        addiu   $a0, $a0, %lo(buf)
        li      $t0, 0x01020304
begin:  sw      $t0, 0($a0)
        lw      $t1, 0($a0)
        sh      $t0, 4($a0)
        lhu     $t1, 4($a0)
        sb      $t0, 6($a0)
        lbu     $t1, 6($a0)
part:   lbu     $t1, 0($a0)                     /* the byte at the lowest address is the highest */
done:   EXIT    0
#elif defined(__s390x__)
START:  larl    %r1, buf
        iilf    %r2, 0x01020304
        iihf    %r2, 0x05060708
begin:  st      %r2, 0(%r1)
        l       %r3, 0(%r1)
        sth     %r2, 4(%r1)
        llgh    %r3, 4(%r1)
        stc     %r2, 6(%r1)
        llgc    %r3, 6(%r1)
part:   llgc    %r3, 0(%r1)
double: stg     %r2, 8(%r1)
        lg      %r3, 8(%r1)
done:   EXIT    0
#endif
        .data
        .balign 8
buf:    .fill   16, 1, 0
