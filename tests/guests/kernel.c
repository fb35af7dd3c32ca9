/*
 * System calls of all kinds, each with what the kernel reads and writes for it by the ABI of the ISA's own headers: printed afterwards, to be
 * compared with what was traced.
 *
 *   N number name      a system call's name
 *   R section addr len read     W section addr len written     nothing else is, in that section
 *   r section addr len          w section addr len             among other things
 *
 * A section begins with close(1000 + its number). With an argument it makes no child.
 */
#define _GNU_SOURCE
/* The kernel's own, beside the C library's. */
#define stat kernel_stat
#define stat64 kernel_stat64
#include <asm/stat.h>
#undef stat
#undef stat64
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static struct {
    char kind;
    int section;
    unsigned long addr, len;
} touched[200];
static int n, section;

static void note(char kind, const volatile void *addr, long len)
{
    if (len > 0) {
        touched[n].kind = kind;
        touched[n].section = section;
        touched[n].addr = (unsigned long)addr;
        touched[n++].len = len;
    }
}

static void next(void)
{
    section++;
    syscall(SYS_close, 1000 + section);
}

/* Fails loudly if a call did not do what the section is about. */
#define CALL(WANT, ...) call(WANT, __LINE__, syscall(__VA_ARGS__))
static long call(int ok, int line, long result)
{
    if ((result >= 0) != ok) {
        printf("line %d: %ld, %s\n", line, result, strerror(errno));
        exit(1);
    }
    return result;
}

#ifdef __mips__
/* The restorer is no longer the kernel's, but still the C library's and QEMU's. */
struct action { unsigned flags; void *handler; unsigned long mask[16 / sizeof(long)]; void *restorer; };
#elif defined(__riscv)
struct action { void *handler; unsigned long flags; unsigned long mask[8 / sizeof(long)]; };
#else
struct action { void *handler; unsigned long flags; void *restorer; unsigned long mask[8 / sizeof(long)]; };
#endif
#define SET sizeof(((struct action *)0)->mask)

/* As the kernel has them where it counts seconds in a long. */
struct time { long sec, part; };

static char out[64] = "sixty-three bytes of text, of which not all need to be written.", in[64];
static char path[] = "/proc/self/exe", none[] = "/no/such/file", name[] = "anonymous", root[] = "/";
static char big[4096];
static int fds[2], pair[2];
static struct iovec vec[3];
static struct pollfd polled[2];
static struct time zero, now;
static struct epoll_event event, happened[4];
static int word = 7;
static struct action old;
static unsigned char set[SET], before[SET];
static stack_t stack;
static struct utsname names;
static struct msghdr message;
static struct sysinfo info;
static unsigned long mask[16], selected[16];
static unsigned long long limit[2];
static int zone[2], waiting;
#ifdef SYS_fstat64
static struct kernel_stat64 status;
#define FSTAT SYS_fstat64
#else
static struct kernel_stat status;
#define FSTAT SYS_fstat
#endif

static void handler(int number, siginfo_t *what, void *context)
{
    ucontext_t *c = context;

    note('w', what, sizeof *what);
    note('w', &c->uc_sigmask, 8);
    note('r', &c->uc_sigmask, 8);
}

static void vectors(void)
{
    for (int i = 0; i < 3; i++) {
        vec[i].iov_base = out + 16 * i;
        vec[i].iov_len = 8;
    }
    next();
    CALL(1, SYS_writev, fds[1], vec, 3);
    note('R', vec, sizeof vec);
    for (int i = 0; i < 3; i++) {
        note('R', out + 16 * i, 8);
    }
    for (int i = 0; i < 3; i++) {
        vec[i].iov_base = in + 20 * i;
        vec[i].iov_len = 10;
    }
    next();
    CALL(1, SYS_readv, fds[0], vec, 3);
    note('R', vec, sizeof vec);
    note('W', in, 10);
    note('W', in + 20, 10);
    note('W', in + 40, 4);
    /* QEMU looks where the buffers are first, and is the kernel here. */
    next();
    CALL(0, SYS_readv, 999, vec, 3);
    note('R', vec, sizeof vec);
}

static void sockets(void)
{
    next();
    CALL(1, SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, pair);
    note('W', pair, sizeof pair);
    next();
    CALL(1, SYS_sendto, pair[0], out, 5, 0, 0, 0);
    note('R', out, 5);
    next();
    CALL(1, SYS_recvfrom, pair[1], in, sizeof in, 0, 0, 0);
    note('W', in, 5);
    vec[0].iov_base = out;
    vec[0].iov_len = 9;
    message.msg_iov = vec;
    message.msg_iovlen = 1;
    next();
    CALL(1, SYS_sendmsg, pair[0], &message, 0);
    note('R', &message, sizeof message);
    note('R', vec, sizeof vec[0]);
    note('R', out, 9);
    vec[0].iov_base = in;
    vec[0].iov_len = sizeof in;
    next();
    CALL(1, SYS_recvmsg, pair[1], &message, 0);
    note('R', &message, sizeof message);
    note('W', &message, sizeof message);
    note('R', vec, sizeof vec[0]);
    note('W', in, 9);
    next();
    CALL(0, SYS_recvfrom, pair[1], in, sizeof in, MSG_DONTWAIT, 0, 0);
}

static void files(void)
{
    long got;
    int fd;

    next();
    CALL(0, SYS_openat, AT_FDCWD, none, O_RDONLY);
    note('R', none, sizeof none);
    next();
    fd = CALL(1, SYS_openat, AT_FDCWD, root, O_RDONLY | O_DIRECTORY);
    note('R', root, sizeof root);
    next();
    got = CALL(1, SYS_getdents64, fd, big, sizeof big);
    note('W', big, got);
    next();
    CALL(1, FSTAT, fd, &status);
    note('W', &status, sizeof status);
    next();
    CALL(0, FSTAT, 999, &status);
    next();
    CALL(1, SYS_statx, AT_FDCWD, path, 0, 0xfff, big);
    note('R', path, sizeof path);
    note('W', big, 256);
    next();
    got = CALL(1, SYS_readlinkat, AT_FDCWD, path, big, sizeof big);
    note('R', path, sizeof path);
    note('W', big, got);
    next();
    got = CALL(1, SYS_getcwd, big, sizeof big);
    note('W', big, got);
    next();
    fd = CALL(1, SYS_memfd_create, name, 0);
    note('R', name, sizeof name);
    next();
    call(1, __LINE__, pwrite(fd, out, 12, 0));
    note('R', out, 12);
    next();
    call(1, __LINE__, pread(fd, in, sizeof in, 4));
    note('W', in, 8);
}

static void waiting_for(void)
{
    int e;

    polled[0].fd = fds[0];
    polled[1].fd = fds[1];
    polled[0].events = polled[1].events = POLLIN | POLLOUT;
    next();
    CALL(1, SYS_ppoll, polled, 2, &zero, 0, SET);
    note('R', polled, sizeof polled);
    note('R', &zero, sizeof zero);
    note('W', &zero, sizeof zero);
    note('W', &polled[0].revents, 2);
    note('W', &polled[1].revents, 2);
    next();
    selected[0] = 1ul << fds[1];
    CALL(1, SYS_pselect6, fds[1] + 1, 0, selected, 0, &zero, 0);
    note('R', selected, sizeof(long));
    note('W', selected, sizeof(long));
    note('R', &zero, sizeof zero);
    note('W', &zero, sizeof zero);
    e = CALL(1, SYS_epoll_create1, 0);
    event.events = EPOLLOUT;
    next();
    CALL(1, SYS_epoll_ctl, e, EPOLL_CTL_ADD, fds[1], &event);
    note('R', &event, sizeof event);
    next();
    CALL(1, SYS_epoll_pwait, e, happened, 4, 0, 0, SET);
    note('W', happened, sizeof happened[0]);
    next();
    CALL(0, SYS_futex, &word, FUTEX_WAIT, 8, 0, 0, 0);
    note('R', &word, 4);
    next();
    CALL(0, SYS_futex, &word, FUTEX_WAIT, 7, &zero, 0, 0);
    note('R', &word, 4);
    note('R', &zero, sizeof zero);
    next();
    CALL(1, SYS_futex, &word, FUTEX_WAKE, 1, 0, 0, 0);
    next();
    CALL(1, SYS_nanosleep, &zero, 0);
    note('R', &zero, sizeof zero);
}

static void process(int alone)
{
    long got;
    pid_t child;

    next();
    CALL(1, SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    note('W', &now, sizeof now);
    next();
    CALL(1, SYS_gettimeofday, &now, zone);
    note('W', &now, sizeof now);
    note('W', zone, sizeof zone);
    next();
    CALL(1, SYS_times, selected);
    note('W', selected, 4 * sizeof(long));
    next();
    CALL(1, SYS_rt_sigaction, SIGUSR1, 0, &old, SET);
    note('W', &old, sizeof old);
    next();
    CALL(1, SYS_rt_sigprocmask, SIG_BLOCK, set, before, SET);
    note('R', set, SET);
    note('W', before, SET);
    next();
    CALL(1, SYS_sigaltstack, 0, &stack);
    note('W', &stack, sizeof stack);
    next();
    CALL(1, SYS_uname, &names);
    note('W', &names, sizeof names);
    next();
    CALL(1, SYS_getrandom, big, 33, 0);
    note('W', big, 33);
    next();
    CALL(1, SYS_prlimit64, 0, 7, 0, limit);
    note('W', limit, sizeof limit);
    next();
    CALL(1, SYS_set_tid_address, &word);
    next();
    CALL(1, SYS_ioctl, fds[0], FIONREAD, &waiting);
    note('W', &waiting, 4);
    next();
    CALL(0, SYS_ioctl, fds[0], TIOCGWINSZ, big);
    next();
    CALL(1, SYS_sysinfo, &info);
    note('W', &info, sizeof info);
    next();
    CALL(1, SYS_prctl, PR_GET_NAME, big, 0, 0, 0);
    note('W', big, 16);
    next();
    got = CALL(1, SYS_sched_getaffinity, 0, sizeof mask, mask);
    note('W', mask, got);
    next();
    CALL(1, SYS_mincore, (long)big & -4096, 4096, in);
    note('W', in, 1);

    if (!alone) {
        child = fork();
        if (child == 0) {
            _exit(0);
        }
        next();
        CALL(1, SYS_wait4, child, &waiting, 0, big);
        note('W', &waiting, 4);
        note('W', big, 18 * sizeof(long));
        next();
        CALL(0, SYS_wait4, child, &waiting, 0, big);
    }

    next();
    CALL(1, SYS_kill, getpid(), SIGUSR2);
}

static void name_of(int number, const char *text)
{
    printf("N %d %s\n", number, text);
    if (number != SYS_rt_sigreturn && number != SYS_exit_group) {
        syscall(number, -1L, -1L, -1L, -1L, -1L, -1L);
    }
}

int main(int argc, char **argv)
{
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

    sigaction(SIGUSR2, &action, 0);
    next();
    CALL(1, SYS_pipe2, fds, 0);
    note('W', fds, sizeof fds);
    next();
    CALL(1, SYS_write, fds[1], out, 16);
    note('R', out, 16);
    next();
    CALL(1, SYS_read, fds[0], in, sizeof in);
    note('W', in, 16);
    next();
    CALL(0, SYS_read, 999, in, sizeof in);
    next();
    CALL(0, SYS_write, 999, out, 16);
    next();
    CALL(0, SYS_write, fds[1], (void *)8, 16);
    vectors();
    sockets();
    files();
    waiting_for();
    process(argc > 1);
    next();

/* Made here, unless it ends the program: it fails or does nothing. */
#define NAME(N) name_of(SYS_##N, #N)
    NAME(read);
    NAME(close);
    NAME(openat);
    NAME(rt_sigreturn);
    NAME(exit_group);
    NAME(statx);
    NAME(pread64);
    NAME(clone3);
    NAME(preadv2);
    NAME(pkey_alloc);
    NAME(faccessat2);
    NAME(io_uring_setup);
#ifdef SYS_futex_time64
    NAME(futex_time64);
    NAME(clock_nanosleep_time64);
    NAME(ppoll_time64);
#endif
    for (int i = 0; i < n; i++) {
        printf("%c %d %lx %lu\n", touched[i].kind, touched[i].section, touched[i].addr, touched[i].len);
    }
    return 0;
}
