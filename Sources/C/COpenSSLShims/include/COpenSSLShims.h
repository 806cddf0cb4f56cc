// What Swift cannot import from OpenSSL's headers: function-like macros.
#pragma once
#include <openssl/ssl.h>

// SHA-1 and SHA-256 of two byte ranges in a row, with the state on the stack: one call of a few
// hundred nanoseconds, no allocation and no provider look-up. Either range may be empty.
void bugle_sha1(const void *first, size_t first_count, const void *second, size_t second_count,
                unsigned char *digest);
void bugle_sha256(const void *first, size_t first_count, const void *second, size_t second_count,
                  unsigned char *digest);
