/*
 * The same atomics with one thread and with two: QEMU translates them in two ways.
 */
#include <pthread.h>
#include <stdio.h>

static volatile int word, stop;
static volatile long wide;
static int failures;

static void check(int ok)
{
    failures += !ok;
}

#ifdef __aarch64__
/* Exclusives and not the C library's choice of functions. */
__attribute__((target("no-outline-atomics")))
#endif
__attribute__((noinline)) void ops(void);
__attribute__((noinline)) void ops(void)
{
    int expected = 4;
    long wide_expected = 0x1122334455667788ull & -1ul;

    word = 5;
    wide = wide_expected;
    check(!__atomic_compare_exchange_n(&word, &expected, 6, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    check(__atomic_compare_exchange_n(&word, &expected, 6, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    check(__atomic_compare_exchange_n(&wide, &wide_expected, -2, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    check(!__atomic_compare_exchange_n(&wide, &wide_expected, 3, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    check(__atomic_fetch_add(&word, 0x7fffffff, __ATOMIC_SEQ_CST) == 6);
    check(__atomic_fetch_sub(&word, 2, __ATOMIC_RELAXED) == (int)0x80000005u);
    check(__atomic_and_fetch(&word, 0xf0f, __ATOMIC_SEQ_CST) == 3);
    check(__atomic_or_fetch(&word, 0x70, __ATOMIC_SEQ_CST) == 0x73);
    check(__atomic_xor_fetch(&wide, 0x11, __ATOMIC_SEQ_CST) == (-2 ^ 0x11));
    check(__atomic_exchange_n(&wide, 9, __ATOMIC_SEQ_CST) == (-2 ^ 0x11));
    check(__atomic_nand_fetch(&word, 0x0f, __ATOMIC_SEQ_CST) == ~3);
}

void ops_end(void);
void ops_end(void)
{
}

static void *wait(void *unused)
{
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
    }
    return unused;
}

int main(void)
{
    pthread_t thread;

    /* Volatile: both runs are one loop's. */
    for (volatile int i = 0; i < 2; i++) {
        if (i == 1 && pthread_create(&thread, NULL, wait, NULL)) {
            return 2;
        }
        ops();
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    printf("%d\n", failures);
    return failures != 0;
}
