/*
 * Makes N functions that differ, runs each, and does so as often as the second argument says: x86-64, `mov $i, %eax; ret`. A batch
 * of them at a time, each time at the same addresses.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SIZE = 8, BATCH = 1 << 16 };

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? atol(argv[1]) : 1000;
    int turns = argc > 2 ? atoi(argv[2]) : 1;
    unsigned char *code =
        mmap(NULL, SIZE * BATCH, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t sum = 0;

    for (int turn = 0; turn < turns; turn++) {
        for (uint32_t first = 0; first < n; first += BATCH) {
            uint32_t count = n - first < BATCH ? n - first : BATCH;

            for (uint32_t i = 0; i < count; i++) {
                uint32_t number = first + i;

                code[SIZE * i] = 0xb8;
                memcpy(code + SIZE * i + 1, &number, 4);
                code[SIZE * i + 5] = 0xc3;
            }
            for (uint32_t i = 0; i < count; i++) {
                sum += ((uint32_t (*)(void))(code + SIZE * i))();
            }
        }
    }
    printf("%llu\n", (unsigned long long)sum);
    return sum != (uint64_t)n * (n - 1) / 2 * turns;
}
