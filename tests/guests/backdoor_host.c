/* What touches the host. */
#include "trapline.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "exit")) {
        int result = trapline_exit(77);

        printf("exit %d\n", result);
        return 3;
    }
    if (!strcmp(what, "abort")) {
        printf("abort %d\n", (int)trapline_abort("so it is"));
        return 3;
    }
    if (!strcmp(what, "recv")) {
        for (int i = 0; i < 3; i++) {
            char text[16] = "";
            int n = trapline_recv(5, text, i ? 15 : 4);

            printf(n < 0 ? "recv %d\n" : "recv %d <%s>\n", n, text);
            if (n < 0) {
                break;
            }
        }
        return 0;
    }
    printf("select %d\n", (int)trapline_analyzer_select("trace"));
    printf("select %d\n", (int)trapline_analyzer_select("other"));
    return 0;
}
