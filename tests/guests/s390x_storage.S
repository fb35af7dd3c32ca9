/*
 * Instructions that work on operands in storage, each in a helper of QEMU's.
 */
#include "guest.h"
        .machine z15
        .globl  START
        .text
START:  larl    %r1, src
        larl    %r2, dst
        larl    %r9, data
begin:  xc      0(16,%r2), 0(%r2)               /* clears */
clear:  xc      0(40,%r2), 0(%r2)
xc2:    xc      0(8,%r2), 0(%r1)
nc:     nc      0(4,%r2), 0(%r1)
oc:     oc      0(4,%r2), 0(%r1)
mvn:    mvn     0(3,%r2), 0(%r1)
mvz:    mvz     0(3,%r2), 0(%r1)
mvcin:  mvcin   0(4,%r2), 3(%r1)                /* the source's last byte is named */
mvo:    mvo     0(4,%r2), 0(2,%r1)
fill:   mvc     1(7,%r2), 0(%r2)                /* propagates one byte */
clc:    clc     0(3,%r1), 0(%r9)                /* differs in the second byte */
clc4:   clc     0(4,%r1), 0(%r9)                /* compared as a word */
tr:     tr      0(2,%r9), table - data(%r9)
pack:   pack    0(3,%r2), digits - data(4,%r9)
unpk:   unpk    0(3,%r2), packed - data(3,%r9)
        lghi    %r0, 0
        lgr     %r4, %r2
        la      %r5, string - data(%r9)
mvst:   mvst    %r4, %r5
        lgr     %r4, %r2
        lghi    %r5, 6
        lgr     %r6, %r1
        llilf   %r7, 0x40000004                 /* four bytes, then padded with 0x40 */
mvcl:   mvcl    %r4, %r6
        lghi    %r3, 7
ex:     exrl    %r3, target                     /* eight bytes */
        lghi    %r3, 0x20
ex2:    exrl    %r3, other
        lghi    %r3, 4
vll:    vll     %v1, %r3, 0(%r1)                /* five bytes */
vstl:   vstl    %v1, %r3, 0(%r2)
        lghi    %r10, 10
        lghi    %r11, 11
        lghi    %r4, 1
        lghi    %r5, 2
cdsgno: cdsg    %r4, %r10, quad - data(%r9)     /* loads what is there into r4 and r5 */
cdsg:   cdsg    %r4, %r10, quad - data(%r9)
        llilf   %r0, 0x0200                     /* compare and swap 4 bytes, then store 4 */
        la      %r1, parm - data(%r9)
        lhi     %r4, 5
csstno: csst    word - data(%r9), 0(%r2), %r4   /* not equal */
        lhi     %r4, 3
csst:   csst    word - data(%r9), 0(%r2), %r4   /* r4 is what is there */
ts:     ts      word - data(%r9)
laa:    laa     %r3, %r4, word - data(%r9)
done:   EXIT    0
target: mvc     0(1,%r2), 0(%r1)
other:  oi      0(%r2), 0
        .data
        .balign 256
src:    .byte   0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88
        .fill   248, 1, 0x99
dst:    .fill   256, 1, 0xff
        .balign 256
data:   .byte   0x11, 0x21
        .balign 16
quad:   .quad   0x0102030405060708, 0x1112131415161718
parm:   .long   7
        .balign 16
        .long   9
        .balign 16
word:   .long   3
digits: .byte   0xf1, 0xf2, 0xf3, 0xc4
packed: .byte   0x01, 0x23, 0x4c
string: .asciz  "abc"
        .balign 256
table:  .fill   17, 1, 0
        .byte   0x5a
        .fill   15, 1, 0
        .byte   0xa5
        .fill   222, 1, 0
