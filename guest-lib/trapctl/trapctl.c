/*
 * trapctl: Trapline from a shell in the guest.
 *
 * Exit code: 0 done; 1 the operation gave an error; 2 wrong usage; 3 nobody answers (`present` says so, too); `run`: the command's
 * own, 127 if there is none.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "../include/trapline.h"
#include "sys.h"

/* What a C library would bring; compilers may call them. */
void *memcpy(void *to, const void *from, __SIZE_TYPE__ n)
{
    char *t = to;
    const char *f = from;

    while (n--) {
        *t++ = *f++;
    }
    return to;
}

void *memset(void *to, int byte, __SIZE_TYPE__ n)
{
    char *t = to;

    while (n--) {
        *t++ = (char)byte;
    }
    return to;
}

static __SIZE_TYPE__ length(const char *s)
{
    __SIZE_TYPE__ n = 0;

    while (s[n]) {
        n++;
    }
    return n;
}

static int same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++, b++;
    }
    return *a == *b;
}

static void say(int fd, const char *text)
{
    sys4(SYS_write, fd, (long)text, (long)length(text), 0);
}

/* Without a division, which would be a library's on some ISAs. */
static void say_number(int fd, trapline_result result)
{
    static const trapline_u32 tens[] = { 1000000000, 100000000, 10000000, 1000000, 100000, 10000, 1000, 100, 10, 1 };
    trapline_u32 rest = result < 0 ? 0u - (trapline_u32)result : (trapline_u32)result;
    char text[16];
    int n = 0;

    if (result < 0) {
        text[n++] = '-';
    }
    for (int i = 0; i < 10; i++) {
        char digit = '0';

        while (rest >= tens[i]) {
            rest -= tens[i];
            digit++;
        }
        if (digit != '0' || i == 9 || (n && text[n - 1] != '-')) {
            text[n++] = digit;
        }
    }
    text[n++] = '\n';
    text[n] = 0;
    say(fd, text);
}

/* A decimal or 0x number; -1 if it is none. */
static int number(const char *text, trapline_word *to)
{
    int base = text[0] == '0' && text[1] == 'x' ? 16 : 10;
    const char *s = base == 16 ? text + 2 : text;

    *to = 0;
    if (!*s) {
        return -1;
    }
    for (; *s; s++) {
        int digit = *s >= '0' && *s <= '9' ? *s - '0' : *s >= 'a' && *s <= 'f' ? *s - 'a' + 10 : 99;

        if (digit >= base) {
            return -1;
        }
        *to = *to * (trapline_word)base + (trapline_word)digit;
    }
    return 0;
}

static const char usage[] =
    "usage: trapctl COMMAND\n"
    "  present                    0 if Trapline answers, 3 if not\n"
    "  start | stop [SCOPE]       SCOPE: thread, process, all (the default is all: a thread would be trapctl's own)\n"
    "  state                      prints the depth\n"
    "  roi begin|end ID [NAME]    a region of interest\n"
    "  mark NAME [VALUE]          a marker\n"
    "  event NAME [VALUE...]      an event with up to four values\n"
    "  log TEXT                   a line of text\n"
    "  send CHANNEL TEXT          bytes to the consumers\n"
    "  recv CHANNEL               bytes from the host, to standard output\n"
    "  stats dump|reset [LABEL]   consumers report, or forget\n"
    "  exit CODE                  ends QEMU, if it allows that\n"
    "  run [--] COMMAND ARGS...   traces the command, and nothing else\n";

static int wrong(void)
{
    say(2, usage);
    return 2;
}

static int done(trapline_result result)
{
    if (result >= 0) {
        return 0;
    }
    say(2, result == -TRAPLINE_ENOSYS   ? "trapctl: Trapline does not know this operation\n"
           : result == -TRAPLINE_EPERM  ? "trapctl: Trapline does not allow it (see trapline run --allow)\n"
           : result == -TRAPLINE_EINVAL ? "trapctl: not possible now\n"
                                        : "trapctl: failed\n");
    return 1;
}

static int scope(const char *name, trapline_word *to)
{
    *to = !name || same(name, "all") ? TRAPLINE_SCOPE_ALL
          : same(name, "process")    ? TRAPLINE_SCOPE_PROCESS
          : same(name, "thread")     ? TRAPLINE_SCOPE_VCPU
                                     : 99;
    return *to == 99;
}

/* Searches PATH as a shell does; comes back only if there is no such command. */
static void execute(char **argv, char **envp)
{
    const char *path = "/usr/local/bin:/usr/bin:/bin";
    const char *name = argv[0];
    int slash = 0;

    for (const char *s = name; *s; s++) {
        slash |= *s == '/';
    }
    if (slash) {
        sys4(SYS_execve, (long)name, (long)argv, (long)envp, 0);
        return;
    }
    for (char **e = envp; *e; e++) {
        if ((*e)[0] == 'P' && (*e)[1] == 'A' && (*e)[2] == 'T' && (*e)[3] == 'H' && (*e)[4] == '=') {
            path = *e + 5;
        }
    }
    while (*path) {
        char file[4096];
        __SIZE_TYPE__ n = 0, rest = length(name);

        while (path[n] && path[n] != ':') {
            n++;
        }
        if (n + rest + 2 <= sizeof(file)) {
            memcpy(file, path, n);
            file[n] = '/';
            memcpy(file + n + 1, name, rest + 1);
            sys4(SYS_execve, (long)(n ? file : name), (long)argv, (long)envp, 0);
        }
        path += n + (path[n] == ':');
    }
}

static int run(char **argv, char **envp)
{
    int present = trapline_present(), status = 0;
    long child;

    if (!argv[0]) {
        return wrong();
    }
    if (!present || (trapline_features(0) & TRAPLINE_FEATURE_USER_MODE)) {
        /* What is traced now stays traced as another program. */
        trapline_start(TRAPLINE_SCOPE_PROCESS);
        execute(argv, envp);
        trapline_stop(TRAPLINE_SCOPE_PROCESS);
    } else {
        child = sys_fork();
        if (child == 0) {
            trapline_start(TRAPLINE_SCOPE_ALL);
            execute(argv, envp);
            trapline_stop(TRAPLINE_SCOPE_ALL);
            sys4(SYS_exit_group, 127, 0, 0, 0);
        }
        if (child > 0) {
            while (sys4(SYS_wait4, child, (long)&status, 0, 0) == -4) {
            }
            trapline_stop(TRAPLINE_SCOPE_ALL);
            return status & 0x7f ? 128 + (status & 0x7f) : status >> 8 & 0xff;
        }
    }
    say(2, "trapctl: no such command: ");
    say(2, argv[0]);
    say(2, "\n");
    return 127;
}

static int trapctl(int argc, char **argv, char **envp)
{
    const char *what = argc > 1 ? argv[1] : "", *a = argc > 2 ? argv[2] : 0, *b = argc > 3 ? argv[3] : 0;
    trapline_word n = 0;

    if (same(what, "run")) {
        return run(argv + 2 + (a && same(a, "--")), envp);
    }
    if (same(what, "present")) {
        say(1, trapline_present() ? "present\n" : "absent\n");
        return trapline_present() ? 0 : 3;
    }
    if (same(what, "") || same(what, "--help") || same(what, "help")) {
        say(1, usage);
        return same(what, "") ? 2 : 0;
    }
    if (!trapline_present()) {
        return 3;
    }
    if (same(what, "start") || same(what, "stop")) {
        if (scope(a, &n)) {
            return wrong();
        }
        return done(same(what, "start") ? trapline_start(n) : trapline_stop(n));
    }
    if (same(what, "state")) {
        say_number(1, trapline_state(TRAPLINE_SCOPE_ALL));
        return 0;
    }
    if (same(what, "roi") && a && b && !number(b, &n)) {
        const char *name = argc > 4 ? argv[4] : 0;

        return same(a, "begin") ? done(trapline_roi_begin(n, name))
               : same(a, "end") ? done(trapline_roi_end(n, name))
                                : wrong();
    }
    if (same(what, "mark") && a && (!b || !number(b, &n))) {
        return done(trapline_mark(a, n));
    }
    if (same(what, "event") && a && argc <= 7) {
        trapline_word v[4] = { 0, 0, 0, 0 };
        trapline_result id;

        for (int i = 3; i < argc; i++) {
            if (number(argv[i], &v[i - 3])) {
                return wrong();
            }
        }
        id = trapline_define(a);
        return done(id < 0 ? id : trapline_event((trapline_word)id, v[0], v[1], v[2], v[3]));
    }
    if (same(what, "log") && a) {
        return done(trapline_log(a, length(a), 0));
    }
    if (same(what, "send") && a && b && !number(a, &n)) {
        return done(trapline_send(n, b, length(b)));
    }
    if (same(what, "recv") && a && !number(a, &n)) {
        char bytes[4096];
        trapline_result got;

        while ((got = trapline_recv(n, bytes, sizeof(bytes))) > 0) {
            sys4(SYS_write, 1, (long)bytes, (long)got, 0);
        }
        return done(got);
    }
    if (same(what, "stats") && a && (same(a, "dump") || same(a, "reset"))) {
        return done(same(a, "dump") ? trapline_stats_dump(b) : trapline_stats_reset(b));
    }
    if (same(what, "exit") && a && !number(a, &n)) {
        return done(trapline_exit(n));
    }
    return wrong();
}

/* @stack: argc, argv, NULL, envp, NULL, as the kernel leaves it. */
__attribute__((noreturn, used)) void trapctl_start(long *stack)
{
    int argc = (int)stack[0];
    char **argv = (char **)(stack + 1);
    int code = trapctl(argc, argv, argv + argc + 1);

    for (;;) {
        sys4(SYS_exit_group, code, 0, 0, 0);
    }
}
