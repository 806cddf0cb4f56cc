// What Swift cannot import from OpenSSL's headers: function-like macros.
#pragma once
#include <openssl/ssl.h>
