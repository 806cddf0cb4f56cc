// libmicrohttpd 0.9.75; imported by Admin only.
#pragma once
#include <microhttpd.h>
