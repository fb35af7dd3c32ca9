/*
 * Processes, threads, and ways to end. The first argument says which. What is counted lies in functions of its own.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone, aligned(64)))

volatile int cell, spinning;

/* One store each. */
APART void before(void)
{
    cell = 1;
}

APART void in_child(void)
{
    cell = 2;
}

APART void leaf(void)
{
    cell = 3;
}

/* n stores. */
APART void work(int n)
{
    for (int i = 0; i < n; i++) {
        cell = i;
    }
}

APART void *thread(void *p)
{
    cell = 4;
    return p;
}

APART void *spin(void *p)
{
    for (;;) {
        spinning++;
    }
    return p;
}

static int ran(int status, int code)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == code ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    int n = argc > 2 ? atoi(argv[2]) : 0;
    int status;

    if (!strcmp(which, "leaf")) {
        leaf();
        return 5;
    }
    if (!strcmp(which, "fork")) {
        before();
        if (!fork()) {
            in_child();
            execl(argv[0], argv[0], "leaf", NULL);
            _exit(9);
        }
        wait(&status);
        return ran(status, 5);
    }
    if (!strcmp(which, "failed-exec")) {
        before();
        execl("/nonexistent/program", "x", NULL);
        leaf();
        return 0;
    }
    if (!strcmp(which, "vfork")) {
        char left[12];

        leaf();
        if (n == 0) {
            return 5;
        }
        snprintf(left, sizeof left, "%d", n - 1);
        if (!vfork()) {
            execl(argv[0], argv[0], "vfork", left, NULL);
            _exit(9);
        }
        wait(&status);
        return ran(status, 5) ? 1 : 5;
    }
    if (!strcmp(which, "threads")) {
        for (int i = 0; i < n; i++) {
            pthread_t t;

            if (pthread_create(&t, NULL, thread, NULL) || pthread_join(t, NULL)) {
                return 1;
            }
        }
        return 0;
    }
    if (!strcmp(which, "spin")) {
        pthread_t t;

        if (pthread_create(&t, NULL, spin, NULL)) {
            return 1;
        }
        while (spinning < 100000) {
            usleep(1000);
        }
        work(1000);
        _exit(3);
    }
    if (!strcmp(which, "abort")) {
        work(1000);
        abort();
    }
    if (!strcmp(which, "kill")) {
        work(1000);
        kill(getpid(), SIGKILL);
    }
    if (!strcmp(which, "term")) {
        work(1000);
        raise(SIGTERM);
    }
    if (!strcmp(which, "segv")) {
        work(1000);
        *(volatile int *)16 = 1;
    }
    if (!strcmp(which, "work")) {
        work(n);
        return 7;
    }
    if (!strcmp(which, "read")) {
        char c;

        work(1000);
        if (read(0, &c, 1) != 1) {
            return 1;
        }
        work(1000);
        return c;
    }
    if (!strcmp(which, "syscalls")) {
        /* Their numbers differ by ISA: told to the test. */
        printf("%d %d %d\n", (int)SYS_write, (int)SYS_close, (int)SYS_exit_group);
        fflush(stdout);
        syscall(SYS_write, 1, "hi\n", 3);
        syscall(SYS_close, 12345);
        return 0;
    }
    if (!strcmp(which, "fds")) {
        /* Every descriptor that is open and not one of the first three is one that we did not open. */
        for (int fd = 3; fd < 4096; fd++) {
            if (!close(fd)) {
                printf("%d\n", fd);
            }
        }
        work(1000);
        return 0;
    }
    return 2;
}
