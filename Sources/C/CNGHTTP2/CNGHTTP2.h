// nghttp2 1.52; imported by HTTP2 only.
#pragma once
#include <nghttp2/nghttp2.h>
