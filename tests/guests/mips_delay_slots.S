/*
 * Delay slots, nullified slots, ll/sc, and the partial accesses lwl, lwr, swl, swr.
 * mipsel and mips; 32-bit, release 2.
 */
#include "guest.h"
        .set    noreorder
        .set    noat
        .globl  START
        .text
START:  lui     $a0, %hi(buf)
        addiu   $a0, $a0, %lo(buf)
        li      $t0, 3
begin:  addiu   $t0, $t0, -1
        bnez    $t0, begin
slot:   sw      $t0, 0($a0)                     /* the slot's store: 3 times */
        beq     $zero, $zero, next
slot2:  addiu   $t1, $zero, 5
next:   beq     $zero, $zero, own               /* to its own slot: that runs twice */
own:    addiu   $t2, $t2, 1
likely: bnezl   $zero, skip                     /* not taken: its slot is nullified */
never:  sw      $t1, 4($a0)
skip:   ll      $t3, 8($a0)
inc:    addiu   $t3, $t3, 1
sc:     sc      $t3, 8($a0)
lone:   sc      $t3, 8($a0)                     /* no reservation: stores nothing */
part:   lwl     $t4, 4($a0)
lwr_:   lwr     $t4, 1($a0)
swl_:   swl     $t4, 13($a0)
swr_:   swr     $t4, 13($a0)
movz_:  movz    $t5, $t4, $t1
done:   EXIT    0
        .data
        .balign 4096
buf:    .fill   8192, 1, 0x22
