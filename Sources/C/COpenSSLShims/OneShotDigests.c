// The low-level digest calls are marked deprecated in favour of EVP, whose one-shot form costs
// several times more for inputs of this size; they stay part of the 3.x ABI.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "COpenSSLShims.h"
#include <openssl/sha.h>

void bugle_sha1(const void *first, size_t first_count, const void *second, size_t second_count,
                unsigned char *digest) {
    SHA_CTX state;
    SHA1_Init(&state);
    if (first_count > 0) SHA1_Update(&state, first, first_count);
    if (second_count > 0) SHA1_Update(&state, second, second_count);
    SHA1_Final(digest, &state);
}

void bugle_sha256(const void *first, size_t first_count, const void *second, size_t second_count,
                  unsigned char *digest) {
    SHA256_CTX state;
    SHA256_Init(&state);
    if (first_count > 0) SHA256_Update(&state, first, first_count);
    if (second_count > 0) SHA256_Update(&state, second, second_count);
    SHA256_Final(digest, &state);
}
