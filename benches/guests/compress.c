/* Compression: LZ77 with hash chains over text that repeats itself. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "main.h"

static void once(void)
{
    enum { N = 3 << 20, BITS = 15, NEAR = 1 << 15 };
    uint8_t *in = malloc(N);
    int *head = malloc(sizeof(int) << BITS), *before = malloc(sizeof(int) * N);
    uint32_t x = 1, out = 0;

    for (int i = 0; i < N; i++) {
        x = x * 1664525 + 1013904223;
        in[i] = i > 1000 && x >> 29 ? in[i - 1 - (x >> 8) % 900] : 'a' + (x >> 24) % 26;
    }
    memset(head, -1, sizeof(int) << BITS);
    for (int i = 0; i + 4 < N;) {
        uint32_t h = (in[i] | in[i + 1] << 8 | in[i + 2] << 16) * 2654435761u >> (32 - BITS);
        int best = 0, tries = 16;

        for (int at = head[h]; at >= 0 && i - at < NEAR && tries--; at = before[at]) {
            int n = 0;

            while (n < 255 && i + n < N && in[at + n] == in[i + n]) {
                n++;
            }
            best = n > best ? n : best;
        }
        before[i] = head[h];
        head[h] = i;
        out += best > 3 ? 3 : 1;
        i += best > 3 ? best : 1;
    }
    printf("%u\n", out);
    free(in);
    free(head);
    free(before);
}
