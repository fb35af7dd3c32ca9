/* Memory-heavy: passes over 8 MiB, two loads and a store an element. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "main.h"

static void once(void)
{
    enum { N = 1 << 20 };
    uint64_t *a = malloc(N * 8), *b = malloc(N * 8), s = 0;

    for (int i = 0; i < N; i++) {
        a[i] = i * 2654435761u;
        b[i] = 0;
    }
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < N; i++) {
            b[i] += a[i] ^ s;
            s = b[i] >> 3;
        }
    }
    printf("%llu\n", (unsigned long long)s);
    free(a);
    free(b);
}
