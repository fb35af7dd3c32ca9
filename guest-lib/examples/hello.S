/* cc -nostdlib -static hello.S && trapline run --start-off --analyzer trace -- ./a.out          x86-64 */
        .globl  _start
        .text
_start: xor     %eax, %eax
        nopl    0x49474354(%rax)                        # the probe
        test    %eax, %eax
        jz      absent

        mov     $0x54430010, %eax                       # START
        xor     %edi, %edi                              # the default scope
        .byte   0x0f, 0xb9, 0xbf, 0x54, 0x43, 0x47, 0x49        # the call: ud1 0x49474354(%rdi), %edi
        nop                                             # these three
        nop                                             # are
        nop                                             # traced
        mov     $0x54430011, %eax                       # STOP; this instruction and the next one are, too
        xor     %edi, %edi
        .byte   0x0f, 0xb9, 0xbf, 0x54, 0x43, 0x47, 0x49

absent: mov     $231, %eax                              # exit_group
        xor     %edi, %edi
        syscall
