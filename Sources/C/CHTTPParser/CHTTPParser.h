// http-parser 2.9; imported by HTTP2 only.
#pragma once
#include <http_parser.h>
