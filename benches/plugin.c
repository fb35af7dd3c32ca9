/*
 * What a QEMU plugin can do at best to tell every executed block and every
 * access: a word for each, into a buffer that nobody reads.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include <stdint.h>
#include <qemu-plugin.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

#define WORDS 8192

static __thread struct {
    unsigned n;
    volatile uint64_t words[WORDS];
} buffer;

static void put(uint64_t word)
{
    buffer.words[buffer.n++ % WORDS] = word;
}

static void on_block(unsigned vcpu, void *pc)
{
    put((uintptr_t)pc);
}

static void on_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t addr,
                      void *nothing)
{
    put(addr);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    void *pc = (void *)(uintptr_t)qemu_plugin_tb_vaddr(tb);

    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS,
                                         pc);
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i),
                                         on_access, QEMU_PLUGIN_CB_NO_REGS,
                                         QEMU_PLUGIN_MEM_RW, NULL);
    }
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id,
                                           const qemu_info_t *info, int argc,
                                           char **argv)
{
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
