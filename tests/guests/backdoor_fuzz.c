/*
 * Calls with random registers: SEED N. Every result is a number, and this program's own memory is only written where an operation
 * may write: the addresses among the arguments are random, or in a scratch area, or at its edge.
 */
#include "trapline.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t state;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int main(int argc, char **argv)
{
    long n = argc > 2 ? atol(argv[2]) : 1000, page = sysconf(_SC_PAGESIZE);
    char *area = mmap(0, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    mprotect(area, page, PROT_NONE);
    munmap(area + 3 * page, page);
    state = argc > 1 ? (uint64_t)atol(argv[1]) * 0x9e3779b97f4a7c15u : 1;
    for (long i = 0; i < n; i++) {
        /* Mostly operations that exist. */
        unsigned op = next() % 8 ? next() % 0x60 : next() % 0x10000;
        trapline_word a[6];

        for (int j = 0; j < 6; j++) {
            switch (next() % 6) {
            case 0: a[j] = next() % 16; break;
            case 1: a[j] = (trapline_word)(uintptr_t)area + next() % (4 * page); break;
            case 2: a[j] = (trapline_word)(uintptr_t)area + page * (1 + next() % 3) - next() % 9; break;
            case 3: a[j] = (trapline_word)-1 - next() % 4096; break;
            case 4: a[j] = next() % (2 * TRAPLINE_BUFFER_MAX); break;
            default:
                /* Anything but this program: what is written is its own. */
                a[j] = (trapline_word)(next() % 2 ? next() & 0xfff : next() | (trapline_word)1 << (sizeof(long) * 8 - 1));
                break;
            }
        }
        if (op == TRAPLINE_OP_BREAK || op == TRAPLINE_OP_SET_DEPTH) {
            continue;
        }
        trapline_call(op, a[0], a[1], a[2], a[3], a[4], a[5]);
        /* Not traced all the time: nobody looks at it. */
        trapline_call(TRAPLINE_OP_SET_DEPTH, TRAPLINE_SCOPE_ALL, 0, 0, 0, 0, 0);
    }
    trapline_call(TRAPLINE_OP_FILTER_RANGE, 0, 0, 0, 0, 0, 0);
    printf("%ld calls\n", n);
    return 0;
}
