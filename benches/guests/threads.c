/* Eight threads that share a counter under a lock and work between. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include "main.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t shared;

static void *work(void *arg)
{
    uint64_t x = (uintptr_t)arg;

    for (int i = 0; i < 40000; i++) {
        for (int j = 0; j < 100; j++) {
            x = x * 6364136223846793005ull + 1442695040888963407ull;
        }
        pthread_mutex_lock(&lock);
        shared += x >> 60;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void once(void)
{
    pthread_t all[8];

    for (uintptr_t i = 0; i < 8; i++) {
        pthread_create(&all[i], NULL, work, (void *)i);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(all[i], NULL);
    }
    printf("%llu\n", (unsigned long long)shared);
}
