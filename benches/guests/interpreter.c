/* Branch-heavy: a bytecode interpreter whose blocks have about three instructions. */
#include <stdint.h>
#include <stdio.h>
#include "main.h"

enum { ADD, SUB, XOR, JNZ, DEC, SHR, MOV, END };
static const uint8_t code[] = { ADD, XOR, MOV, SHR, ADD, SUB, XOR, DEC, JNZ, 0, END };

static void once(void)
{
    uint64_t a = 1, b = 3, n = 6000000;
    const uint8_t *pc = code;

    for (;;) {
        switch (*pc++) {
        case ADD: a += b; break;
        case SUB: a -= 7; break;
        case XOR: a ^= n; break;
        case SHR: b >>= 1; break;
        case MOV: b = a; break;
        case DEC: n--; break;
        case JNZ:
            if (n) {
                pc = code + *pc;
            } else {
                pc++;
            }
            break;
        case END:
            printf("%llu\n", (unsigned long long)a);
            return;
        }
    }
}
