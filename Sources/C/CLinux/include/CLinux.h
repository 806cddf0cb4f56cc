// What Swift's Glibc module hides: epoll, eventfd, signalfd, accept4, prctl, getopt_long.
// _GNU_SOURCE stays out of this header: it changes types that the Glibc module also defines.
#pragma once
#include <getopt.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

/// Fills an epoll event whose data is a 64-bit number.
static inline struct epoll_event bugle_epoll_event(uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data = {.u64 = data}};
    return event;
}

/// accept4 with SOCK_NONBLOCK and SOCK_CLOEXEC, the peer's address not asked for.
int bugle_accept(int listener);

/// prctl(PR_SET_NAME), which is variadic.
int bugle_set_thread_name(const char *name);

/// What one step of getopt_long found. `next` is the index of the argument it looks at next.
struct bugle_option_step {
    int code;
    int index;
    int next;
    int rejected;
    const char *value;
};

/// Starts over with another list of arguments.
void bugle_options_restart(void);

/// One step of getopt_long, which keeps its state in globals: one thread at a time.
struct bugle_option_step bugle_options_step(int count, char *const *arguments, const char *shorts,
                                            const struct option *longs);
