/* 5000 stores in a straight line, before and after the process has a second thread. */
#include <pthread.h>

asm(".globl stores, stores_end\n"
    "stores:\n"
    ".set i, 0\n"
    ".rept 5000\n"
    "movl $i, area + 4 * i(%rip)\n"
    ".set i, i + 1\n"
    ".endr\n"
    "stores_ret: ret\n"
    "stores_end: nop\n"
    ".bss\n.globl area\n.balign 4096\narea: .skip 20000\n.text\n");
extern void stores(void);

static void *nothing(void *p)
{
    return p;
}

int main(void)
{
    pthread_t t;

    stores();
    if (pthread_create(&t, 0, nothing, 0) || pthread_join(t, 0)) {
        return 1;
    }
    stores();
    return 0;
}
