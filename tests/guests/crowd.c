/*
 * "short N": N threads one after the other, each of which adds once. "many N": N threads at once, that all wait until the last
 * one is there.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_long counter;
static pthread_barrier_t there;

static void *once(void *arg)
{
    atomic_fetch_add(&counter, 1);
    return arg;
}

static void *wait_for_all(void *arg)
{
    pthread_barrier_wait(&there);
    return once(arg);
}

int main(int argc, char **argv)
{
    long n = argc > 2 ? atol(argv[2]) : 1;
    int many = argc > 1 && !strcmp(argv[1], "many");
    pthread_t *threads = calloc(n, sizeof(*threads));
    pthread_attr_t small;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&there, NULL, n);
    for (long i = 0; i < n; i++) {
        if (pthread_create(&threads[i], &small, many ? wait_for_all : once, NULL)) {
            perror("pthread_create");
            return 1;
        }
        if (!many) {
            pthread_join(threads[i], NULL);
        }
    }
    for (long i = 0; many && i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%ld\n", counter);
    return counter != n;
}
