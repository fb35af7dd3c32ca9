/* Eight threads with an atomic counter and a lock. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_long counter;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long guarded;

static void *work(void *arg)
{
    for (int i = 0; i < 5000; i++) {
        atomic_fetch_add(&counter, 1);
        pthread_mutex_lock(&lock);
        guarded++;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void)
{
    pthread_t t[8];

    for (int i = 0; i < 8; i++) {
        pthread_create(&t[i], NULL, work, NULL);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], NULL);
    }
    printf("%ld %ld\n", counter, guarded);
    return 0;
}
