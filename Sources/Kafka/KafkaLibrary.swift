internal import CRDKafka

/// The library behind this room.
public enum KafkaLibrary {
    /// Its version as it is loaded, for example `2.0.2`.
    public static var version: String { String(cString: rd_kafka_version_str()) }
}
