// What Swift cannot import from libmicrohttpd's header: its start call is variadic.
#pragma once
#include <microhttpd.h>
