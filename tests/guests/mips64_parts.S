/*
 * Doublewords in two parts, and reservations of 64 bits.
 */
#include "guest.h"
        .set    noreorder
        .globl  START
        .text
START:  dla     $4, buf
        li      $2, 7
begin:  ldl     $5, 10($4)                      /* bytes 8 to 10 */
ldr:    ldr     $5, 3($4)                       /* bytes 3 to 7 */
sdl:    sdl     $5, 26($4)
sdr:    sdr     $5, 35($4)
lwl:    lwl     $6, 1($4)
lwr:    lwr     $6, 1($4)
lld:    lld     $6, 0($4)
scd:    scd     $2, 0($4)
scd2:   scd     $2, 0($4)                       /* no reservation */
likely: bnel    $0, $0, done                    /* never taken: the slot is skipped */
        sd      $2, 0($4)
done:   EXIT    0
        .data
        .balign 4096
buf:    .dword  0x0706050403020100, 0x0f0e0d0c0b0a0908
        .space  64
