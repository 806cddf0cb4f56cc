// Redis.
