/* Does once() as many times as the argument says. */
#include <stdlib.h>

static void once(void);

int main(int argc, char **argv)
{
    for (int n = argc > 1 ? atoi(argv[1]) : 1; n > 0; n--) {
        once();
    }
    return 0;
}
