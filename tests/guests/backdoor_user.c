/* Operations that are the analyzer's own, among those that are not. */
#include "trapline.h"
#include <stdio.h>

int main(void)
{
    printf("mark %d\n", (int)trapline_mark("a", 1));
    printf("user %d\n", (int)trapline_call(0x8001, 1, 2, 3, 4, 5, 6));
    printf("analyzer %d\n", (int)trapline_analyzer_call(0, 7, "abc", 3));
    printf("mark %d\n", (int)trapline_mark("b", 1));
    printf("calls %d\n", (int)trapline_call(0x8002, 0, 0, 0, 0, 0, 0));
    printf("other %d\n", (int)trapline_call(0xffff, 0, 0, 0, 0, 0, 0));
    return 0;
}
