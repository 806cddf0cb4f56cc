// Crypto.
