/* Shows what it was given: arguments, an environment variable, standard input; a signal that it waits for. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t got;

static void on_signal(int sig)
{
    got = sig;
}

int main(int argc, char **argv)
{
    char buffer[4096];
    size_t n;

    if (argc > 1 && !strcmp(argv[1], "wait")) {
        signal(SIGUSR1, on_signal);
        signal(SIGTERM, on_signal);
        puts("ready");
        fflush(stdout);
        while (!got) {
            usleep(1000);
        }
        printf("got %d\n", (int)got);
        return 40 + got;
    }
    for (int i = 1; i < argc; i++) {
        printf("arg %d <%s>\n", i, argv[i]);
    }
    printf("env <%s>\n", getenv("GUEST_VARIABLE") ? getenv("GUEST_VARIABLE") : "(unset)");
    printf("trapline <%s>\n", getenv("QEMU_TRAPLINE") ? getenv("QEMU_TRAPLINE") : "(unset)");
    fflush(stdout);
    while ((n = fread(buffer, 1, sizeof buffer, stdin)) > 0) {
        fwrite(buffer, 1, n, stdout);
    }
    fprintf(stderr, "to standard error\n");
    return 42;
}
