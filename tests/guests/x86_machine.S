/*
 * A machine without an operating system: the ROM of a PC, from the reset vector on; 64 KiB at the top of 4 GiB.
 *
 * 16-bit, 32-bit and 64-bit code; a loop; int; ud2 and a page fault, which their handlers step over; the timer's interrupt
 * while the CPU is halted; user mode and back. The end is a device that ends QEMU with code 7.
 */
        .section .rom, "ax"
rom:
        .code32
prot:   mov     $0x10, %eax
        mov     %eax, %ds
        mov     %eax, %es
        mov     %eax, %ss
        mov     $0x8000, %esp
        # Page tables at 0x10000: four gigabytes where they are, for user mode, too.
        mov     $0x10000, %edi
        xor     %eax, %eax
        mov     $2048, %ecx
        cld
clear:  rep stosl
        movl    $0x11007, 0x10000
        movl    $0x00000087, 0x11000
        movl    $0x40000087, 0x11008
        movl    $0x80000087, 0x11010
        movl    $0xc0000087, 0x11018
        mov     %cr4, %eax
        or      $0x20, %eax
        mov     %eax, %cr4
        mov     $0x10000, %eax
space:  mov     %eax, %cr3
        mov     $0xc0000080, %ecx
        rdmsr
        or      $0x100, %eax
        wrmsr
        mov     %cr0, %eax
        or      $0x80000000, %eax
paging: mov     %eax, %cr0
        ljmp    $0x18, $long

        .code64
long:   lidt    idtr(%rip)
        mov     $0x28, %eax
        ltr     %ax
        mov     $0x9000, %rsp

        mov     $0x1000, %edi
        mov     $10, %ecx
begin:  mov     %ecx, (%rdi)
load:   mov     (%rdi), %eax
        dec     %ecx
        jnz     begin
done:
call:   int     $0x80
after:  mov     $2, %r13d
ill:    ud2
        movabs  $0x8000000000, %rbx
        mov     $2, %r13d
fault:  mov     (%rbx), %eax
stepped:
        # What comes from the old interrupt controller is passed on.
        mov     $0xfee00000, %ebx
        movl    $0x1ff, 0xf0(%rbx)
        movl    $0x700, 0x350(%rbx)
        # The interrupt controller: vectors from 0x20 on, the timer only. The timer: once, soon.
        mov     $0x11, %al
        out     %al, $0x20
        mov     $0x20, %al
        out     %al, $0x21
        mov     $0x04, %al
        out     %al, $0x21
        mov     $0x01, %al
        out     %al, $0x21
        mov     $0xfe, %al
        out     %al, $0x21
        mov     $0x30, %al
        out     %al, $0x43
        mov     $0x00, %al
        out     %al, $0x40
        mov     $0x10, %al
        out     %al, $0x40
        sti
halt:   hlt
woken:  cli
        pushq   $0x3b
        pushq   $0xa000
        pushq   $0x2
        pushq   $0x43
        mov     $user, %eax
        push    %rax
leave:  iretq

user:   mov     $0x1000, %edi
ustore: mov     %edi, 8(%rdi)
ucall:  int     $0x81
unever: jmp     unever

power:  mov     $3, %eax
off:    out     %eax, $0xf4
hang:   jmp     hang

        # Where the error code is and where it is not.
hpf:    add     $8, %rsp
hud:    add     %r13, (%rsp)
back:   iretq
hcall:  iretq
htimer: mov     $0x20, %al
        out     %al, $0x20
tdone:  iretq

        .balign 8
gdt:    .quad   0
        .quad   0x00cf9b000000ffff      # 0x08: 32-bit code
        .quad   0x00cf93000000ffff      # 0x10: data
        .quad   0x00af9b000000ffff      # 0x18: 64-bit code
        .quad   0
        .word   0x67, tss - rom, 0x89ff, 0xff00 # 0x28: the task, at 0xffff0000 + …
        .quad   0
        .quad   0x00cff3000000ffff      # 0x38: user data
        .quad   0x00affb000000ffff      # 0x40: user code
gdtend:
gdtr:   .word   gdtend - gdt - 1
        .long   gdt
tss:    .long   0
        .quad   0xb000
        .zero   0x67

        .macro  gate handler, type
        .word   \handler - rom, 0x18, \type, 0xffff
        .quad   0
        .endm
        .balign 8
idt:    .rept   6
        gate    hang, 0x8e00
        .endr
        gate    hud, 0x8e00
        .rept   7
        gate    hang, 0x8e00
        .endr
        gate    hpf, 0x8e00
        .rept   0x20 - 15
        gate    hang, 0x8e00
        .endr
        gate    htimer, 0x8e00
        .rept   0x80 - 0x21
        gate    hang, 0x8e00
        .endr
        gate    hcall, 0x8e00
        gate    power, 0xee00
idtend:
idtr:   .word   idtend - idt - 1
        .quad   idt

        .code16
real:   cli
        data32 lgdt %cs:(gdtr - rom)
        mov     %cr0, %eax
        or      $1, %al
pe:     mov     %eax, %cr0
far:    data32 ljmp $0x08, $prot

        .org    0xfff0
        .globl  _start
_start: jmp     real
        .org    0x10000
