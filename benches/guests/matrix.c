/* A matrix product, which compilers make vectors of. */
#include <stdio.h>
#include "main.h"

enum { N = 320 };
static float a[N][N], b[N][N], c[N][N];

static void once(void)
{
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            a[i][j] = i + j;
            b[i][j] = i - j;
        }
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < N; k++) {
                for (int j = 0; j < N; j++) {
                    c[i][j] += a[i][k] * b[k][j];
                }
            }
        }
    }
    printf("%g\n", c[N / 2][N / 3]);
}
