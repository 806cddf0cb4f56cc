// gzip (RFC 1952) for bodies of requests: what is compressed here fits into memory, and so does
// what comes out of it.

public import Base
internal import CZlib

/// Compresses bodies. Confined to one thread: it keeps its memory between calls.
public final class GzipWriter {
    private let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)

    /// A writer; nil when memory is short.
    public init?() {
        stream.initialize(to: z_stream())
        // Fast rather than small: what is compressed repeats itself. 16 asks for gzip's frame.
        let code = deflateInit2_(
            stream, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION,
            Int32(MemoryLayout<z_stream>.size))
        guard code == Z_OK else {
            stream.deallocate()
            return nil
        }
    }

    deinit {
        deflateEnd(stream)
        stream.deallocate()
    }

    /// Appends the compressed bytes; false, and nothing appended, when that fails.
    public func compress(_ bytes: UnsafeRawBufferPointer, into output: ByteWriter) -> Bool {
        guard deflateReset(stream) == Z_OK else { return false }
        let bound = Int(deflateBound(stream, UInt(bytes.count)))
        var isDone = false
        output.appendUninitialized(bound) { room in
            stream.pointee.next_in = UnsafeMutablePointer(
                mutating: bytes.assumingMemoryBound(to: UInt8.self).baseAddress)
            stream.pointee.avail_in = UInt32(bytes.count)
            stream.pointee.next_out = room.assumingMemoryBound(to: UInt8.self).baseAddress
            stream.pointee.avail_out = UInt32(room.count)
            isDone = deflate(stream, Z_FINISH) == Z_STREAM_END
            return isDone ? room.count - Int(stream.pointee.avail_out) : 0
        }
        return isDone
    }
}

/// Reads what others compressed.
public enum Gzip {
    /// The bytes inside; nil when they are no gzip, or more than `limit`.
    public static func decompressed(_ bytes: UnsafeRawBufferPointer, limit: Int) -> [UInt8]? {
        var stream = z_stream()
        let size = Int32(MemoryLayout<z_stream>.size)
        guard inflateInit2_(&stream, MAX_WBITS + 16, ZLIB_VERSION, size) == Z_OK else {
            return nil
        }
        defer { inflateEnd(&stream) }
        var output = [UInt8](repeating: 0, count: limit)
        let code = output.withUnsafeMutableBufferPointer { room in
            stream.next_in = UnsafeMutablePointer(
                mutating: bytes.assumingMemoryBound(to: UInt8.self).baseAddress)
            stream.avail_in = UInt32(bytes.count)
            stream.next_out = room.baseAddress
            stream.avail_out = UInt32(room.count)
            return inflate(&stream, Z_FINISH)
        }
        guard code == Z_STREAM_END else { return nil }
        output.removeLast(Int(stream.avail_out))
        return output
    }
}
