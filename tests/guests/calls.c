/* `leaf`, which has no branches, is called 10 + 5 times by `middle`, which is called twice by `main`. */
__attribute__((noinline, noclone)) int leaf(int x)
{
    __asm__ volatile("" ::: "memory");
    return x + 1;
}

__attribute__((noinline, noclone)) int middle(int n)
{
    int s = 0;

    for (int i = 0; i < n; i++) {
        s += leaf(i);
    }
    return s;
}

int main(void)
{
    return middle(10) + middle(5) == 70 ? 0 : 1;
}
