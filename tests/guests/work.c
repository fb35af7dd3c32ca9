/* What real programs do: sorting, floating point, copying, text, long double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

int main(void)
{
    enum { N = 3000 };
    int *a = malloc(N * sizeof(*a));
    unsigned s = 1;
    double d = 0;
    long double f = 1;
    char b[4000];

    for (int i = 0; i < N; i++) {
        s = s * 1103515245 + 12345;
        a[i] = s >> 8;
    }
    qsort(a, N, sizeof(*a), compare);
    for (int i = 0; i < 2000; i++) {
        d += sin(i * 0.01) * sqrt(i);
    }
    memset(b, 7, sizeof(b));
    for (int i = 0; i < 300; i++) {
        memcpy(b + i, b + i * 3, 500);
    }
    for (int i = 1; i < 50; i++) {
        f *= i;
    }
    printf("%d %d %.6f %.0Lf %d\n", a[0], a[N - 1], d, f, b[17]);
    return 0;
}
