// The two commands of a look-up as bytes, with everything that does not depend on the user
// prepared once per reader. All buckets' parts lie in one block: an array per bucket would be a
// cache miss and a reference count per look-up.

internal import Base
internal import Redis

/// Loop-confined.
internal final class LookUpCommands {
    private let bytes = ByteWriter(capacity: 96 << 10)
    /// Where each bucket's part of `bytes` starts: its marker command, then the start of its keys.
    @exclusivity(unchecked) private var markerStart: [Int32] = []
    @exclusivity(unchecked) private var keyStart: [Int32] = []
    @exclusivity(unchecked) private var slots: [RedisSlot] = []

    init(_ layout: RedisLayout) {
        for bucket in 0..<IndexLimits.buckets {
            markerStart.append(Int32(bytes.count))
            bytes.append(commandOf: 3)
            bytes.append(argument: "HGET" as StaticString)
            bytes.append(argument: layout.marker(bucket))
            bytes.append(argument: "c" as StaticString)
            slots.append(RedisSlot(of: layout.marker(bucket)))
            keyStart.append(Int32(bytes.count))
            bytes.append("\(layout.prefix){b\(bucket)}:u:")
        }
        markerStart.append(Int32(bytes.count))
    }

    /// The slot that all keys of a bucket are in.
    func slot(of bucket: Int) -> RedisSlot { slots[bucket] }

    /// Appends the command that reads a bucket's marker.
    func append(marker bucket: Int, to writer: ByteWriter) {
        writer.append(part(from: markerStart[bucket], to: keyStart[bucket]))
    }

    /// Appends the command that reads a user's addresses.
    func append(user userID: String, app: String, _ bucket: Int, to writer: ByteWriter) {
        let start = part(from: keyStart[bucket], to: markerStart[bucket + 1])
        writer.append("*2\r\n$7\r\nHGETALL\r\n$" as StaticString)
        writer.append(decimal: Int64(start.count + app.utf8.count + 1 + userID.utf8.count))
        writer.append("\r\n" as StaticString)
        writer.append(start)
        writer.append(app)
        writer.append(0x3A)
        writer.append(userID)
        writer.append("\r\n" as StaticString)
    }

    private func part(from start: Int32, to end: Int32) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: bytes.bytes[Int(start)..<Int(end)])
    }
}
