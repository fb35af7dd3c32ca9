/* A timer at 1 kHz, faults that a handler jumps out of, and a loop under both. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile long ticks;
static sigjmp_buf back;

static void tick(int sig)
{
    ticks++;
}

static void fault(int sig)
{
    siglongjmp(back, 1);
}

int main(void)
{
    struct sigaction a = { .sa_handler = tick };
    struct itimerval t = { { 0, 1000 }, { 0, 1000 } };
    volatile double x = 0;
    volatile long faults = 0;

    sigaction(SIGALRM, &a, NULL);
    setitimer(ITIMER_REAL, &t, NULL);
    signal(SIGSEGV, fault);
    for (int i = 0; i < 1000; i++) {
        if (!sigsetjmp(back, 1)) {
            *(volatile int *)8 = 1;
        } else {
            faults++;
        }
    }
    for (volatile long i = 0; i < 400000; i++) {
        x += i * 0.5;
    }
    printf("%ld %d\n", faults, ticks > 3);
    return 0;
}
