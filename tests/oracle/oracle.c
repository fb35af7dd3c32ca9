/*
 * The oracle: a QEMU plugin that logs every instruction and every memory
 * access the official way, to be compared with Trapline's stream of the same
 * run.
 *
 * One file per thread, OUT.PID.TID, of 32-byte records in host byte order:
 *   u64 pc or address, u64 value (low), u64 value (high),
 *   u8 kind ('I', 'R', 'W'), u8 size, 6 bytes 0
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <qemu-plugin.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

typedef struct {
    uint64_t where, low, high;
    uint8_t kind, size, pad[6];
} Record;

#define BUFFERED 1024

typedef struct {
    int fd;
    unsigned n;
    Record records[BUFFERED];
} Log;

#define MAX_THREADS 100000

static Log *logs[MAX_THREADS];
static unsigned n_logs;
static __thread Log *mine;
static char *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void flush(Log *log)
{
    const char *p = (const char *)log->records;
    size_t left = log->n * sizeof(Record);

    while (left) {
        ssize_t n = write(log->fd, p, left);
        if (n <= 0) {
            perror("oracle");
            _exit(1);
        }
        p += n;
        left -= n;
    }
    log->n = 0;
}

static Log *get(void)
{
    char path[4096];
    Log *log = mine;

    if (log) {
        return log;
    }
    pthread_mutex_lock(&lock);
    log = calloc(1, sizeof(Log));
    /* Appended to: the image after an execve is the same thread. */
    snprintf(path, sizeof(path), "%s.%d.%d", out, getpid(), gettid());
    log->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log->fd < 0 || n_logs == MAX_THREADS) {
        perror(path);
        _exit(1);
    }
    /* Out of the guest's way. */
    int high = fcntl(log->fd, F_DUPFD_CLOEXEC, 500);
    if (high >= 0) {
        close(log->fd);
        log->fd = high;
    }
    logs[n_logs++] = log;
    mine = log;
    pthread_mutex_unlock(&lock);
    return log;
}

static Record *add(void)
{
    Log *log = get();

    if (log->n == BUFFERED) {
        flush(log);
    }
    Record *r = &log->records[log->n++];
    memset(r, 0, sizeof(*r));
    return r;
}

/* A forked child logs on its own, and nothing of its parent's twice. */
static void in_child(void)
{
    for (unsigned i = 0; i < n_logs; i++) {
        close(logs[i]->fd);
        free(logs[i]);
    }
    n_logs = 0;
    mine = NULL;
}

static void insn_exec(unsigned vcpu, void *pc)
{
    Record *r = add();

    r->where = (uintptr_t)pc;
    r->kind = 'I';
}

static void mem_access(unsigned vcpu, qemu_plugin_meminfo_t info,
                       uint64_t vaddr, void *pc)
{
    qemu_plugin_mem_value v = qemu_plugin_mem_get_value(info);
    Record *r = add();

    r->where = vaddr;
    r->kind = qemu_plugin_mem_is_store(info) ? 'W' : 'R';
    r->size = 1 << qemu_plugin_mem_size_shift(info);
    switch (v.type) {
    case QEMU_PLUGIN_MEM_VALUE_U8:
        r->low = v.data.u8;
        break;
    case QEMU_PLUGIN_MEM_VALUE_U16:
        r->low = v.data.u16;
        break;
    case QEMU_PLUGIN_MEM_VALUE_U32:
        r->low = v.data.u32;
        break;
    case QEMU_PLUGIN_MEM_VALUE_U64:
        r->low = v.data.u64;
        break;
    case QEMU_PLUGIN_MEM_VALUE_U128:
        r->low = v.data.u128.low;
        r->high = v.data.u128.high;
        break;
    }
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        void *pc = (void *)(uintptr_t)qemu_plugin_insn_vaddr(insn);

        qemu_plugin_register_vcpu_insn_exec_cb(insn, insn_exec,
                                               QEMU_PLUGIN_CB_NO_REGS, pc);
        qemu_plugin_register_vcpu_mem_cb(insn, mem_access,
                                         QEMU_PLUGIN_CB_NO_REGS,
                                         QEMU_PLUGIN_MEM_RW, pc);
    }
}

static void at_exit(qemu_plugin_id_t id, void *p)
{
    for (unsigned i = 0; i < n_logs; i++) {
        flush(logs[i]);
    }
}

/* An execve or a signal may end this image without at_exit. */
static void syscall_start(qemu_plugin_id_t id, unsigned vcpu, int64_t num,
                          uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                          uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    flush(get());
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id,
                                           const qemu_info_t *info,
                                           int argc, char **argv)
{
    if (argc != 1 || strncmp(argv[0], "out=", 4)) {
        fprintf(stderr, "oracle: out=PREFIX is expected\n");
        return -1;
    }
    out = strdup(argv[0] + 4);
    pthread_atfork(NULL, NULL, in_child);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, syscall_start);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
