// Kafka.
