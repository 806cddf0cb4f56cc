// What Swift cannot import from librdkafka's headers: variadic functions and function-like macros.
#pragma once
#include <librdkafka/rdkafka.h>
