/*
 * The stub library: the two instructions behind the C ABI, for languages that call C but cannot emit instructions (Python's
 * ctypes, Go, the JVM). Two functions are all that is needed; the operations are numbers (trapline.h).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "../include/trapline.h"

/* The protocol's version; 0: nobody is there. */
uint32_t trapline_stub_version(void);
/* An operation; at least 0, or a negative errno (-38 if nobody is there). On 32-bit ISAs the upper halves are ignored. */
int64_t trapline_stub_call(uint32_t op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5);

uint32_t trapline_stub_version(void)
{
    return trapline_version();
}

int64_t trapline_stub_call(uint32_t op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
    return trapline_call(op, (trapline_word)a0, (trapline_word)a1, (trapline_word)a2, (trapline_word)a3,
                         (trapline_word)a4, (trapline_word)a5);
}
