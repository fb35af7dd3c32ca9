/*
 * Every operation, what it gives, one a line. Absent (natively, in another emulator) it prints "absent", and every call gives
 * -ENOSYS and harms nothing.
 */
#include "trapline.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void show(const char *name, trapline_result result)
{
    printf("%s %lld\n", name, (long long)result);
}

int main(int argc, char **argv)
{
    const char *bad = (const char *)16;
    char text[8], *page;
    trapline_u64 a = 0, b = 0;

    printf("%s\n", trapline_present() ? "present" : "absent");
    show("version", trapline_call(TRAPLINE_OP_VERSION, 0, 0, 0, 0, 0, 0));
    show("features", trapline_features(0));
    show("features 7", trapline_features(7));
    show("echo", trapline_echo(40, 2));
    show("whoami", trapline_whoami());
    show("state", trapline_state(TRAPLINE_SCOPE_DEFAULT));
    show("stop", trapline_stop(TRAPLINE_SCOPE_DEFAULT));
    show("start", trapline_start(TRAPLINE_SCOPE_DEFAULT));
    show("start", trapline_start(TRAPLINE_SCOPE_VCPU));
    show("state", trapline_state(TRAPLINE_SCOPE_VCPU));
    show("stop", trapline_stop(TRAPLINE_SCOPE_DEFAULT));
    show("set_depth", trapline_set_depth(TRAPLINE_SCOPE_DEFAULT, 0));
    show("start all", trapline_start(TRAPLINE_SCOPE_ALL));
    show("state all", trapline_state(TRAPLINE_SCOPE_ALL));
    show("stop all", trapline_stop(TRAPLINE_SCOPE_ALL));
    show("start 9", trapline_start(9));
    show("roi_begin", trapline_roi_begin(7, "parse"));
    show("roi_end", trapline_roi_end(7, "parse"));
    show("roi_begin", trapline_roi_begin(8, 0));
    show("roi_begin bad", trapline_roi_begin(8, bad));
    show("define", trapline_define("request"));
    show("define", trapline_define("reply"));
    show("define", trapline_define("request"));
    show("define 0", trapline_define(0));
    show("event", trapline_event(1, 11, 12, 13, 14));
    show("mark", trapline_mark("here", 99));
    show("mark bad", trapline_mark(bad, 99));
    show("log", trapline_log("line of text", 12, 3));
    show("log bad", trapline_log(bad, 12, 3));
    show("log 0", trapline_log(0, 0, 3));
    show("send", trapline_send(5, "\001\002\377", 3));
    show("send long", trapline_send(5, text, TRAPLINE_BUFFER_MAX + 1));
    show("recv", trapline_recv(5, text, sizeof(text)));
    show("thread_name", trapline_thread_name("worker"));
    show("clock", trapline_clock(TRAPLINE_CLOCK_MONOTONIC, &a));
    show("clock", trapline_clock(TRAPLINE_CLOCK_MONOTONIC, &b));
    show("clock rises", b > a && a > 0);
    show("clock bad", trapline_clock(TRAPLINE_CLOCK_WALL, (trapline_u64 *)16));
    show("clock 9", trapline_clock(9, &a));
    show("counter", trapline_counter(TRAPLINE_COUNTER_STARTS, &a));
    show("starts", (trapline_result)a);
    show("stats_dump", trapline_stats_dump("phase"));
    show("stats_reset", trapline_stats_reset(0));
    show("select", trapline_analyzer_select("trace"));
    show("analyzer 1", trapline_analyzer_call(1, 2, "abc", 3));
    show("symbol", trapline_add_symbol(text, 8, "jitted"));
    show("filter", trapline_filter_range(8, 4, 1));
    show("asid", trapline_scope_asid(1));
    show("exit", trapline_exit(77));
    show("abort", trapline_abort("over"));
    show("break", trapline_break());
    show("unknown", trapline_call(0x7fff, 1, 2, 3, 4, 5, 6));
    show("user", trapline_call(0x8001, 1, 2, 3, 4, 5, 6));

    /* Texts and buffers at the end of what is mapped. */
    page = mmap(0, 2 * sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + sysconf(_SC_PAGESIZE), sysconf(_SC_PAGESIZE));
    page += sysconf(_SC_PAGESIZE);
    memcpy(page - 4, "end", 4);
    show("mark end", trapline_mark(page - 4, 1));
    page[-1] = '!';
    show("mark over", trapline_mark(page - 4, 1));
    show("log over", trapline_log(page - 4, 5, 0));
    show("clock over", trapline_clock(0, (trapline_u64 *)(page - 4)));
    (void)argc, (void)argv;
    return 0;
}
