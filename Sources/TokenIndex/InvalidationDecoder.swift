internal import JSON

/// Reads what is on `push.invalidations`. Confined to one thread.
public final class InvalidationDecoder {
    private let parser = JSONParser(maximumBytes: IndexLimits.recordBytes)

    /// A decoder with its buffers.
    public init() {}

    /// Reads a record; nil for a null value, which says nothing.
    public func decode(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?
    ) throws(RecordError) -> InvalidationRecord? {
        try InvalidationRecord.decode(key: key, value: value, parser: parser)
    }
}
