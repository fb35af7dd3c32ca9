/*
 * Maps, moves, protects and unmaps memory in all ways. Prints what it did, to be compared with what was traced:
 *
 *   map addr len prot offset file       mapped (file: a part of its name, or -)
 *   unmap addr len
 *   protect addr len prot
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

static char text[8192];

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    __builtin_va_list args;

    __builtin_va_start(args, format);
    vsnprintf(text + strlen(text), sizeof text - strlen(text), format, args);
    __builtin_va_end(args);
}

static void *checked(void *p)
{
    if (p == (void *)-1) {
        perror("a call failed");
        exit(1);
    }
    return p;
}

static void mapped(void *p, long len, int prot, long offset, const char *file)
{
    say("map %lx %lx %d %lx %s\n", (long)checked(p), len, prot, offset, file);
}

static void unmapped(void *p, long len)
{
    say("unmap %lx %lx\n", (long)p, len);
}

int main(int argc, char **argv)
{
    const long page = 4096;
    /* Also where shared memory begins at multiples of more than a page. */
    const long piece = 16 * page;
    int fd = open(argv[0], O_RDONLY);
    char *file, *moved, *memory, *top;
    int id;

    /* A file, and what becomes of it. */
    file = mmap(0, 4 * page, PROT_READ, MAP_PRIVATE, fd, page);
    mapped(file, 4 * page, PROT_READ, page, "remap");
    checked((void *)(long)mprotect(file + page, page, PROT_READ | PROT_WRITE));
    say("protect %lx %lx %d\n", (long)(file + page), page, PROT_READ | PROT_WRITE);
    file[page] = 1;
    moved = mremap(file + 2 * page, 2 * page, 3 * page, MREMAP_MAYMOVE);
    unmapped(file + 2 * page, 2 * page);
    mapped(moved, 3 * page, PROT_READ, 3 * page, "remap");
    if (argc > 100) {
        puts(moved);
    }
    munmap(moved, 3 * page);
    unmapped(moved, 3 * page);
    munmap(file + page, page);
    unmapped(file + page, page);

    /* Memory that shrinks, and grows to where it was told to be. */
    memory = mmap(0, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mapped(memory, 8 * page, PROT_READ | PROT_WRITE, 0, "-");
    memory[3] = 5;
    checked(mremap(memory, 8 * page, 2 * page, 0));
    unmapped(memory + 2 * page, 6 * page);
    checked(mremap(memory, 2 * page, 4 * page, MREMAP_MAYMOVE | MREMAP_FIXED, memory + 4 * page));
    unmapped(memory, 2 * page);
    mapped(memory + 4 * page, 4 * page, PROT_READ | PROT_WRITE, 0, "-");
    if (memory[4 * page + 3] != 5) {
        return 2;
    }
    munmap(memory + 4 * page, 4 * page);
    unmapped(memory + 4 * page, 4 * page);

    /* Memory that others can have. */
    id = shmget(IPC_PRIVATE, piece, IPC_CREAT | 0600);
    memory = shmat(id, 0, 0);
    mapped(memory, piece, PROT_READ | PROT_WRITE, 0, "-");
    memory[5] = 1;
    moved = shmat(id, 0, SHM_RDONLY);
    mapped(moved, piece, PROT_READ, 0, "-");
    if (moved[5] != 1) {
        return 3;
    }
    shmctl(id, IPC_RMID, 0);
    shmdt(memory);
    unmapped(memory, piece);
    shmdt(moved);
    unmapped(moved, piece);

    /* The break, up and down. */
    top = checked(sbrk(0));
    top = (char *)(((long)top + page - 1) & -page);
    checked((void *)(long)brk(top));
    say("break\n");
    checked((void *)(long)brk(top + 3 * page));
    mapped(top, 3 * page, PROT_READ | PROT_WRITE, 0, "-");
    top[2 * page] = 1;
    checked((void *)(long)brk(top + page));
    unmapped(top + page, 2 * page);

    fputs(text, stdout);
    fflush(stdout);
    if (argc > 1) {
        /* A violation, if one could trace it: what was unmapped is used, and the fault ends the program. */
        top[2 * page] = 2;
    }
    return 0;
}
