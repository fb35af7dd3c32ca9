/* A sort, with a call per comparison. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "main.h"

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void once(void)
{
    enum { N = 1 << 20 };
    uint32_t *a = malloc(N * 4), x = 1, s = 0;

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            x = x * 1664525 + 1013904223;
            a[i] = x;
        }
        qsort(a, N, 4, compare);
        s ^= a[N / 2];
    }
    printf("%u\n", s);
    free(a);
}
