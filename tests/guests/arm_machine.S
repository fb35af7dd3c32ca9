/*
 * A machine without an operating system: AArch32 (A32) on QEMU's `virt`, no firmware, supervisor mode.
 *
 * A loop; an svc; a load where nothing is, which the handler steps over; an undefined instruction, stepped over, too; a timer interrupt while it waits;
 * user mode: an svc from there; the end through PSCI.
 */
        .arch   armv7-a
        .arch_extension virt
        .arm
        .text
        .globl  _start
_start:
        ldr     r0, =vectors
        mcr     p15, 0, r0, c12, c0, 0      // VBAR
        mov     r10, #0
        mov     r11, #0

        ldr     r1, =buf
        mov     r2, #10
begin:  str     r2, [r1]
load:   ldr     r3, [r1]
        subs    r2, r2, #1
        bne     begin
done:
call:   svc     #7
after:  mov     r5, #0x0f000000
fault:  ldr     r3, [r5]
stepped:
ill:    udf     #1
        // GICv2: distributor and CPU interface on, all priorities, the virtual timer's line (27).
legal:  mov     r0, #0x08000000
        mov     r1, #1
        str     r1, [r0]
        mov     r1, #0x08000000
        str     r1, [r0, #0x100]
        mov     r0, #0x08000000
        add     r0, r0, #0x10000
        mov     r1, #0xff
        str     r1, [r0, #4]
        mov     r1, #1
        str     r1, [r0]
        mov     r2, #0
        mov     r3, #0
        mcrr    p15, 3, r2, r3, c14         // CNTV_CVAL
        mov     r1, #1
        mcr     p15, 0, r1, c14, c3, 1      // CNTV_CTL
        isb
enable: cpsie   i
wait:   cmp     r11, #0
        beq     wait
waited:
        // Another address space: no page tables are used.
        ldr     r1, =buf
space:  mcr     p15, 0, r1, c2, c0, 0       // TTBR0
        isb
        mov     r10, #1
leave:  cps     #16

user:   ldr     r1, =buf
ustore: str     r2, [r1, #8]
ucall:  svc     #9
unever: b       unever

power:  ldr     r0, =0x84000008
off:    hvc     #0
hang:   b       hang

        .balign 32
vectors:
        b       hang
vundef: b       undef
vsvc:   b       sys
        b       hang
vabort: b       abort
        b       hang
virq:   b       irq
        b       hang

sys:    cmp     r10, #0
        bne     power
        movs    pc, lr
undef:  movs    pc, lr
abort:  subs    pc, lr, #4
irq:    mov     r11, #1
        mov     r1, #0
        mcr     p15, 0, r1, c14, c3, 1
        mov     r0, #0x08000000
        add     r0, r0, #0x10000
        ldr     r1, [r0, #12]
        str     r1, [r0, #16]
idone:  subs    pc, lr, #4

        .ltorg
        .data
        .balign 16384
buf:    .zero   4096
