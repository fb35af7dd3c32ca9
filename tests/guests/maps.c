/* Loads a library while it runs, calls into it, unloads it. Prints its own mappings if told to. */
#include <dlfcn.h>
#include <stdio.h>

__attribute__((noinline)) double call(double (*f)(double))
{
    return f(0.0);
}

int main(int argc, char **argv)
{
#ifdef DYNAMIC
    void *m = dlopen("libm.so.6", RTLD_NOW);
    double (*cosine)(double) = m ? (double (*)(double))dlsym(m, "cos") : 0;

    if (!cosine || call(cosine) != 1.0) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    dlclose(m);
#endif
    if (argc > 1) {
        FILE *maps = fopen("/proc/self/maps", "r");
        char line[4096];

        while (maps && fgets(line, sizeof line, maps)) {
            fputs(line, stdout);
        }
    }
    puts("done");
    return 0;
}
