// What Swift cannot import from libmicrohttpd's header: its start call is variadic.
#pragma once
#include <microhttpd.h>
#include <stddef.h>

// Starts a daemon with one thread of its own on a listening socket, which the daemon closes when
// it stops; NULL when it cannot start, and then the socket stays with the caller.
struct MHD_Daemon *cmicrohttpd_start(int listen_fd, unsigned int connections,
                                     unsigned int timeout_seconds, size_t connection_memory,
                                     MHD_AccessHandlerCallback handler, void *context);
