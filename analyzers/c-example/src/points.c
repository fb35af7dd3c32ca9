/*
 * Two points in C.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "trapline.h"

static uint64_t align;
static uint32_t counter, every;
static uint64_t calls;

void c_example_start(uint64_t align_, uint32_t counter_, uint32_t every_);
uint64_t c_example_calls(void);

void c_example_start(uint64_t align_, uint32_t counter_, uint32_t every_)
{
    align = align_;
    counter = counter_;
    every = every_;
}

uint64_t c_example_calls(void)
{
    return __atomic_load_n(&calls, __ATOMIC_RELAXED);
}

/* Runs when emitted code calls it: one word, the pc. */
static void on_thousandth(TraplineVcpu *vcpu, uint64_t pc)
{
    (void)vcpu;
    (void)pc;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

static bool wanted(const TraplineInsn *insn)
{
    return insn->pc % align == 0;
}

void trapline_point_fetch(const TraplineInsn *insn, TraplinePoint *point)
{
    TraplineAction *a;

    if (wanted(insn)) {
        point->wants |= TRAPLINE_WANT_TRACE;
    }

    a = point->add(point);
    a->kind = TRAPLINE_DO_COUNT;
    a->slot = counter;
    a->n = 1;

    a = point->add(point);
    a->kind = TRAPLINE_DO_CALL;
    a->helper = (void *)on_thousandth;
    a->n_args = 1;
    a->args[0].kind = TRAPLINE_ARG_PC;
    a->n_conditions = 1;
    a->conditions[0].kind = TRAPLINE_IF_EVERY;
    a->conditions[0].a = every;
    a->conditions[0].b = 1000;
}

void trapline_point_mem(const TraplineAccess *access, TraplinePoint *point)
{
    if (wanted(access->insn) && access->flags & TRAPLINE_ACCESS_STORE) {
        point->wants |= TRAPLINE_WANT_TRACE;
    }
}
