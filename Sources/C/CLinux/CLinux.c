#define _GNU_SOURCE
#include "CLinux.h"

#include <sys/socket.h>

int bugle_accept(int listener) {
    return accept4(listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

int bugle_set_thread_name(const char *name) {
    return prctl(PR_SET_NAME, (unsigned long)name, 0, 0, 0);
}

void bugle_options_restart(void) {
    // Zero makes glibc forget where it was, permutation included.
    optind = 0;
    opterr = 0;
}

struct bugle_option_step bugle_options_step(int count, char *const *arguments, const char *shorts,
                                            const struct option *longs) {
    struct bugle_option_step step = {.index = -1};
    step.code = getopt_long(count, arguments, shorts, longs, &step.index);
    step.next = optind;
    step.rejected = optopt;
    step.value = optarg;
    return step;
}
