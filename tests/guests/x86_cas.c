/* Compare-and-swap that succeeds and that fails, before and after the process has a second thread. */
#include <pthread.h>

asm(".globl cas, cas_end\n"
    "cas: push %rbx\n"
    "lea cell(%rip), %rdi\n"
    "movq $5, (%rdi)\n"
    "movq $6, 8(%rdi)\n"
    "mov $5, %eax\n mov $6, %edx\n mov $7, %ebx\n mov $8, %ecx\n"
    "yes16: lock cmpxchg16b (%rdi)\n"
    "no16: lock cmpxchg16b (%rdi)\n" /* rdx:rax is 6:5, the cell is 8:7 */
    "mov $1, %eax\n xor %edx, %edx\n"
    "no8: lock cmpxchg8b (%rdi)\n"
    "yes8: lock cmpxchg8b (%rdi)\n" /* edx:eax is now what is there */
    "mov $1, %eax\n"
    "no4: lock cmpxchg %ecx, (%rdi)\n"
    "yes4: lock cmpxchg %ecx, (%rdi)\n"
    "cas_out: pop %rbx\n"
    "ret\n"
    "cas_end: nop\n"
    ".data\n.globl cell\n.balign 16\ncell: .quad 0, 0\n.text\n");
extern void cas(void);

static void *nothing(void *p)
{
    return p;
}

int main(void)
{
    pthread_t t;

    cas();
    if (pthread_create(&t, 0, nothing, 0) || pthread_join(t, 0)) {
        return 1;
    }
    cas();
    return 0;
}
