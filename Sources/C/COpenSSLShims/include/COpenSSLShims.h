// What Swift cannot import from OpenSSL's headers: function-like macros.
#pragma once
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>

// SHA-1 and SHA-256 of two byte ranges in a row, with the state on the stack: one call of a few
// hundred nanoseconds, no allocation and no provider look-up. Either range may be empty.
void bugle_sha1(const void *first, size_t first_count, const void *second, size_t second_count,
                unsigned char *digest);
void bugle_sha256(const void *first, size_t first_count, const void *second, size_t second_count,
                  unsigned char *digest);

static inline long bugle_ssl_ctx_set_mode(SSL_CTX *context, long mode) {
    return SSL_CTX_set_mode(context, mode);
}

/// TLS 1.2 or newer; nothing that RFC 9113, section 9.2 forbids for HTTP/2.
static inline int bugle_ssl_ctx_require_modern(SSL_CTX *context) {
    SSL_CTX_set_options(
        context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) &&
           SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20");
}

static inline long bugle_ssl_set_server_name(SSL *session, const char *name) {
    return SSL_set_tlsext_host_name(session, name);
}


static inline void bugle_ssl_ctx_set_read_ahead(SSL_CTX *context) {
    SSL_CTX_set_read_ahead(context, 1);
}

// Overwrites memory that held a secret; the compiler may not leave it out.
static inline void bugle_cleanse(void *memory, size_t count) { OPENSSL_cleanse(memory, count); }
