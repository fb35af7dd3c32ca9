// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
/*
 * Tells Trapline which process runs: its name and an event at each switch and exec, and page faults and interrupts if asked.
 *
 * Loaded where nobody answers it does nothing at all: no tracepoint is hooked.
 *
 *   thread name         of the process that runs now (its first thread's)
 *   event "switch"      pid before, pid now, process (tgid) now
 *   event "fault"       address, error code, 1 if in user mode      (faults=1)
 *   event "irq"         number, 1 at its start and 0 at its end     (interrupts=1)
 */
#include <linux/binfmts.h>
#include <linux/interrupt.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/version.h>

#include "../include/trapline.h"

static bool faults;
module_param(faults, bool, 0444);
MODULE_PARM_DESC(faults, "tell page faults");

static bool interrupts;
module_param(interrupts, bool, 0444);
MODULE_PARM_DESC(interrupts, "tell interrupts");

static trapline_word switch_id, fault_id, irq_id;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 18, 0)
static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next,
		      unsigned int prev_state)
#else
static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next)
#endif
{
	trapline_thread_name(next->group_leader->comm);
	trapline_event(switch_id, prev->pid, next->pid, next->tgid, 0);
}

/* It goes on under another name. */
static void on_exec(void *data, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	trapline_thread_name(task->group_leader->comm);
	trapline_event(switch_id, old_pid, task->pid, task->tgid, 0);
}

static void on_fault_user(void *data, unsigned long address, struct pt_regs *regs, unsigned long code)
{
	trapline_event(fault_id, address, code, 1, 0);
}

static void on_fault_kernel(void *data, unsigned long address, struct pt_regs *regs, unsigned long code)
{
	trapline_event(fault_id, address, code, 0, 0);
}

static void on_irq_entry(void *data, int irq, struct irqaction *action)
{
	trapline_event(irq_id, irq, 1, 0, 0);
}

static void on_irq_exit(void *data, int irq, struct irqaction *action, int ret)
{
	trapline_event(irq_id, irq, 0, 0, 0);
}

struct hook {
	const char *name;
	void *probe;
	const bool *wanted; /* NULL: always */
	struct tracepoint *point;
};

static struct hook hooks[] = {
	{ "sched_switch", on_switch, NULL },
	{ "sched_process_exec", on_exec, NULL },
	{ "page_fault_user", on_fault_user, &faults },
	{ "page_fault_kernel", on_fault_kernel, &faults },
	{ "irq_handler_entry", on_irq_entry, &interrupts },
	{ "irq_handler_exit", on_irq_exit, &interrupts },
};

static void look(struct tracepoint *point, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (!strcmp(point->name, hooks[i].name))
			hooks[i].point = point;
	}
}

static void unhook(int count)
{
	while (count--) {
		if (hooks[count].point)
			tracepoint_probe_unregister(hooks[count].point, hooks[count].probe, NULL);
	}
	tracepoint_synchronize_unregister();
}

static bool present;

static int __init trapline_switch_init(void)
{
	int i, err;

	present = trapline_present();
	if (!present) {
		pr_info("trapline: nobody answers, nothing is told\n");
		return 0;
	}
	switch_id = trapline_define("switch");
	fault_id = trapline_define("fault");
	irq_id = trapline_define("irq");
	for_each_kernel_tracepoint(look, NULL);
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (hooks[i].wanted && !*hooks[i].wanted)
			hooks[i].point = NULL;
		else if (!hooks[i].point)
			pr_warn("trapline: this kernel has no tracepoint %s\n", hooks[i].name);
		if (!hooks[i].point)
			continue;
		err = tracepoint_probe_register(hooks[i].point, hooks[i].probe, NULL);
		if (err) {
			pr_err("trapline: tracepoint %s: %d\n", hooks[i].name, err);
			unhook(i);
			return err;
		}
	}
	return 0;
}

static void __exit trapline_switch_exit(void)
{
	if (present)
		unhook(ARRAY_SIZE(hooks));
}

module_init(trapline_switch_init);
module_exit(trapline_switch_exit);
MODULE_DESCRIPTION("Tells Trapline which process runs");
MODULE_LICENSE("Dual MIT/GPL");
