/* Regions of interest: "inner" by name, 2 without a name. */
#include "trapline.h"

__attribute__((noinline, noipa)) int inner_work(int n)
{
    int sum = 0;

    for (int i = 0; i < n; i++) {
        sum += i * n;
        __asm__ volatile("" : "+r"(sum));
    }
    return sum;
}
__asm__(".globl inner_work.end\ninner_work.end:\n");

__attribute__((noinline, noipa)) int outer_work(int n)
{
    __asm__ volatile("" : "+r"(n));
    return n + 1;
}
__asm__(".globl outer_work.end\nouter_work.end:\n");

int main(void)
{
    for (int i = 0; i < 10; i++) {
        trapline_roi_begin(2, 0);
        outer_work(i);
        trapline_roi_end(2, 0);
        for (int j = 0; j < 2; j++) {
            trapline_roi_begin(1, "inner");
            inner_work(100);
            trapline_roi_end(1, "inner");
        }
        inner_work(3);
    }
    return 0;
}
