/* "all": one thread starts tracing for everything while four others run; "one": for itself. Then a thread comes late. */
#include "trapline.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static volatile int ready, go;

static void *spin(void *unused)
{
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (!go) {
    }
    return unused;
}

__attribute__((noinline, noipa)) void *late(void *unused)
{
    __asm__ volatile("");
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t t[5];

    for (int i = 0; i < 4; i++) {
        pthread_create(&t[i], 0, spin, 0);
    }
    while (ready < 4) {
        usleep(1000);
    }
    trapline_start(argc > 1 && !strcmp(argv[1], "all") ? TRAPLINE_SCOPE_ALL : TRAPLINE_SCOPE_VCPU);
    usleep(100000);
    go = 1;
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], 0);
    }
    pthread_create(&t[4], 0, late, 0);
    pthread_join(t[4], 0);
    return 0;
}
