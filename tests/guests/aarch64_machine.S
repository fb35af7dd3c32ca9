/*
 * A machine without an operating system: AArch64 on QEMU's `virt`, no firmware, EL1.
 *
 * A loop; an svc; a load where nothing is, which the handler steps over; a timer interrupt while it waits;
 * EL0: an svc from there; the end through PSCI.
 */
        .text
        .globl  _start
_start:
        ldr     x0, =vectors
        msr     vbar_el1, x0
        mov     x20, #0
        mov     x21, #0

        ldr     x1, =buf
        mov     w2, #10
begin:  str     w2, [x1]
load:   ldr     w3, [x1]
        subs    w2, w2, #1
        b.ne    begin
done:
call:   svc     #7
after:  mov     x4, #0x20000000
        mov     x5, #0x40000000000
fault:  ldr     w3, [x5]
stepped:
        // GICv2: distributor and CPU interface on, all priorities, the virtual timer's line (27).
        mov     x0, #0x08000000
        mov     w1, #1
        str     w1, [x0]
        mov     w1, #0x08000000
        str     w1, [x0, #0x100]
        mov     x0, #0x08010000
        mov     w1, #0xff
        str     w1, [x0, #4]
        mov     w1, #1
        str     w1, [x0]
        msr     cntv_cval_el0, xzr
        mov     x0, #1
        msr     cntv_ctl_el0, x0
        isb
enable: msr     daifclr, #2
wait:   cbz     x21, wait
waited:
        // Another address space: no page tables are used, its number is.
        mov     x0, #(5 << 48)
        ldr     x1, =buf
        orr     x0, x0, x1
space:  msr     ttbr0_el1, x0
        isb
        ldr     x0, =user
        msr     elr_el1, x0
        msr     spsr_el1, xzr
leave:  eret

user:   ldr     x1, =buf
ustore: str     w2, [x1, #8]
ucall:  svc     #9
unever: b       unever

power:  ldr     w0, =0x84000008
off:    hvc     #0
hang:   b       hang

        .macro  vector where, name
        .balign 128
        .ifnb   \name
\name:
        .endif
        b       \where
        .endm

        .balign 2048
vectors:
        vector  hang
        vector  hang
        vector  hang
        vector  hang
        // From EL1 itself.
        vector  sync, vsync
        vector  irq, virq
        vector  hang
        vector  hang
        // From EL0.
        vector  power, vuser
        vector  hang
        vector  hang
        vector  hang

sync:   add     x20, x20, #1
        mrs     x6, esr_el1
        lsr     x6, x6, #26
        cmp     x6, #0x15
        b.eq    back
        // Not a call: it goes on after the instruction.
        mrs     x6, elr_el1
        add     x6, x6, #4
        msr     elr_el1, x6
back:   eret
irq:    mov     x21, #1
        msr     cntv_ctl_el0, xzr
        mov     x0, #0x08010000
        ldr     w1, [x0, #12]
        str     w1, [x0, #16]
idone:  eret

        .data
        .balign 4096
buf:    .zero   4096
