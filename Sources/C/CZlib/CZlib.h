// zlib 1.2; imported by Compression only.
#pragma once
#include <zlib.h>
