// The one growable byte buffer of the data path. It owns its memory, keeps its capacity when it
// is emptied, and knows the few renderings that requests and records need, so that no String is
// built per message.

/// A growable, reusable buffer of bytes.
///
/// Loop-confined: not `Sendable`. Appending is amortised O(n); `removeAll` keeps the memory.
public final class ByteWriter {
    // Exclusivity is not checked at run time for these: a check costs more than an append, and no
    // access to them lasts longer than the statement it stands in. They are private, as other
    // modules that touch a stored property itself check it whatever it says.
    @exclusivity(unchecked) private var base: UnsafeMutableRawPointer
    @exclusivity(unchecked) private var capacity: Int

    @exclusivity(unchecked) private var used: Int

    /// The number of bytes written.
    public var count: Int { used }

    /// A buffer with room for `capacity` bytes before it grows.
    public init(capacity: Int = 256) {
        precondition(capacity >= 0)
        self.capacity = max(capacity, 16)
        self.base = .allocate(byteCount: self.capacity, alignment: 16)
        self.used = 0
    }

    deinit { base.deallocate() }

    /// The written bytes; valid until the next mutation.
    public var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: base, count: count) }

    /// Empties the buffer and keeps its memory.
    public func removeAll() { used = 0 }

    /// Drops everything after the first `count` bytes.
    public func truncate(to count: Int) {
        precondition(count >= 0 && count <= self.count)
        used = count
    }

    /// Drops the first `count` bytes and moves the others to the front. O(n) in what stays.
    public func removeFirst(_ count: Int) {
        precondition(count >= 0 && count <= self.count)
        used -= count
        base.copyMemory(from: base + count, byteCount: self.count)
    }

    /// Makes room for `extra` more bytes.
    public func reserve(_ extra: Int) {
        if count + extra > capacity { grow(to: count + extra) }
    }

    private func grow(to minimum: Int) {
        let larger = max(minimum, capacity * 2)
        let memory = UnsafeMutableRawPointer.allocate(byteCount: larger, alignment: 16)
        memory.copyMemory(from: base, byteCount: count)
        base.deallocate()
        base = memory
        capacity = larger
    }

    /// Lets `body` write up to `size` bytes at the end; it returns how many it wrote.
    public func appendUninitialized(
        _ size: Int, _ body: (UnsafeMutableRawBufferPointer) -> Int
    ) {
        reserve(size)
        let written = body(UnsafeMutableRawBufferPointer(start: base + count, count: size))
        precondition(written >= 0 && written <= size)
        used += written
    }

    /// Lets `body` replace bytes that are written already.
    public func overwrite(
        at offset: Int, count: Int, _ body: (UnsafeMutableRawBufferPointer) -> Void
    ) {
        precondition(offset >= 0 && count >= 0 && offset + count <= self.count)
        body(UnsafeMutableRawBufferPointer(start: base + offset, count: count))
    }

    /// Appends one byte.
    public func append(_ byte: UInt8) {
        if count == capacity { grow(to: count + 1) }
        base.storeBytes(of: byte, toByteOffset: count, as: UInt8.self)
        used += 1
    }

    /// Appends raw bytes.
    public func append(_ source: UnsafeRawBufferPointer) {
        guard let start = source.baseAddress, source.count > 0 else { return }
        if count + source.count > capacity { grow(to: count + source.count) }
        (base + count).copyMemory(from: start, byteCount: source.count)
        used += source.count
    }

    /// Appends the bytes of an array.
    public func append(_ source: [UInt8]) { source.withUnsafeBytes { append($0) } }

    /// Appends a literal.
    public func append(_ text: StaticString) {
        append(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    /// Appends the UTF-8 of a string.
    public func append(_ text: String) {
        Self.withBytes(of: text) { append($0) }
    }

    /// Lends the UTF-8 of a string. Every string of this platform lies in one piece, so that the
    /// mutable copy, which the standard library's other way asks for, is not made.
    @inline(__always)
    private static func withBytes(of text: String, _ body: (UnsafeRawBufferPointer) -> Void) {
        let done: Void? = text.utf8.withContiguousStorageIfAvailable {
            body(UnsafeRawBufferPointer($0))
        }
        if done == nil {
            var copy = text
            copy.withUTF8 { body(UnsafeRawBufferPointer($0)) }
        }
    }

    /// Appends a decimal number.
    public func append(decimal value: Int64) {
        var rest = value.magnitude
        let digits = Self.digitCount(of: rest)
        let length = value < 0 ? digits + 1 : digits
        reserve(length)
        if value < 0 { base.storeBytes(of: 0x2D, toByteOffset: used, as: UInt8.self) }
        used += length
        // Two digits at a time, from the last ones on.
        var position = used
        while rest >= 100 {
            let next = rest / 100
            position -= 2
            store(pair: Int(rest &- next &* 100), at: position)
            rest = next
        }
        if rest >= 10 {
            store(pair: Int(rest), at: position - 2)
        } else {
            base.storeBytes(
                of: 0x30 + UInt8(truncatingIfNeeded: rest), toByteOffset: position - 1,
                as: UInt8.self)
        }
    }

    /// Writes the two digits of a number below 100.
    @inline(__always)
    private func store(pair: Int, at position: Int) {
        let digits = UnsafeRawPointer(Self.pairs.utf8Start)
            .loadUnaligned(fromByteOffset: pair * 2, as: UInt16.self)
        base.storeBytes(of: digits, toByteOffset: position, as: UInt16.self)
    }

    /// How many decimal digits a number has: from its bits, and one look at a power of ten.
    @inline(__always)
    private static func digitCount(of value: UInt64) -> Int {
        let bits = UInt64.bitWidth - (value | 1).leadingZeroBitCount
        // 1233 / 4096 is a little above log10(2).
        let guess = (bits * 1233) >> 12
        return value | 1 < powersOfTen[guess] ? guess : guess + 1
    }

    private static let powersOfTen: [20 of UInt64] = [
        1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000,
        10_000_000_000, 100_000_000_000, 1_000_000_000_000, 10_000_000_000_000,
        100_000_000_000_000, 1_000_000_000_000_000, 10_000_000_000_000_000,
        100_000_000_000_000_000, 1_000_000_000_000_000_000, 10_000_000_000_000_000_000,
    ]

    private static let pairs: StaticString =
        """
        00010203040506070809101112131415161718192021222324252627282930313233343536373839\
        40414243444546474849505152535455565758596061626364656667686970717273747576777879\
        8081828384858687888990919293949596979899
        """

    /// Appends lower-case hex.
    public func append(hex source: UnsafeRawBufferPointer) {
        reserve(source.count * 2)
        var index = 0
        while index + 4 <= source.count {
            let word = source.loadUnaligned(fromByteOffset: index, as: UInt32.self).bigEndian
            base.storeBytes(
                of: Self.digits(of: word).bigEndian, toByteOffset: count, as: UInt64.self)
            used += 8
            index += 4
        }
        while index < source.count {
            append(Hex.digit(source[index] >> 4))
            append(Hex.digit(source[index] & 15))
            index += 1
        }
    }

    /// Appends a quoted JSON string (RFC 8259), escaping as little as the grammar allows.
    ///
    /// Ill-formed UTF-8 is the caller's fault: bytes from 0x80 up are copied as they are.
    public func append(jsonString source: UnsafeRawBufferPointer) {
        reserve(source.count + 2)
        var start = 0
        var end = Self.plainEnd(of: source, from: 0)
        append(0x22)
        while end < source.count {
            append(UnsafeRawBufferPointer(rebasing: source[start..<end]))
            appendEscaped(source[end])
            start = end + 1
            end = Self.plainEnd(of: source, from: start)
        }
        append(UnsafeRawBufferPointer(rebasing: source[start..<end]))
        append(0x22)
    }

    /// Appends the name of an object's member with its quotes and colon, behind a comma unless it
    /// is the first. The name must need no escaping.
    public func append(jsonName name: StaticString, isFirst: Bool) {
        let length = name.utf8CodeUnitCount
        reserve(length + 4)
        var position = base + count
        if !isFirst {
            position.storeBytes(of: 0x2C, as: UInt8.self)
            position += 1
        }
        position.storeBytes(of: 0x22, as: UInt8.self)
        (position + 1).copyMemory(from: name.utf8Start, byteCount: length)
        position.storeBytes(of: 0x22, toByteOffset: length + 1, as: UInt8.self)
        position.storeBytes(of: 0x3A, toByteOffset: length + 2, as: UInt8.self)
        used += length + (isFirst ? 3 : 4)
    }

    /// The end of the run, from `start` on, of bytes that stand for themselves in a JSON string.
    private static func plainEnd(of source: UnsafeRawBufferPointer, from start: Int) -> Int {
        // Eight bytes at a time: the high bit of a lane is set when its byte is below 0x20, or
        // is a quote or a backslash; a borrow can only mark lanes above a true hit.
        let (ones, highs): (UInt64, UInt64) = (0x0101_0101_0101_0101, 0x8080_8080_8080_8080)
        var index = start
        while index + 8 <= source.count {
            let word = source.loadUnaligned(fromByteOffset: index, as: UInt64.self).littleEndian
            let quotes = word ^ (ones &* 0x22)
            let backslashes = word ^ (ones &* 0x5C)
            let low = (word &- ones &* 0x20) & ~word
            let hits =
                (low | ((quotes &- ones) & ~quotes) | ((backslashes &- ones) & ~backslashes))
                & highs
            if hits != 0 { return index + hits.trailingZeroBitCount / 8 }
            index += 8
        }
        while index < source.count {
            let byte = source[index]
            if byte < 0x20 || byte == 0x22 || byte == 0x5C { break }
            index += 1
        }
        return index
    }

    /// Appends a quoted JSON string (RFC 8259).
    public func append(jsonString text: String) {
        Self.withBytes(of: text) { append(jsonString: $0) }
    }

    private func appendEscaped(_ byte: UInt8) {
        append(0x5C)
        switch byte {
        case 0x22, 0x5C: append(byte)
        case 0x0A: append(0x6E)
        case 0x0D: append(0x72)
        case 0x09: append(0x74)
        default:
            append("u00")
            append(Hex.digit(byte >> 4))
            append(Hex.digit(byte & 15))
        }
    }
}

extension ByteWriter {
    /// A copy of the written bytes.
    public var array: [UInt8] { Array(bytes) }

    /// The written bytes as text, with ill-formed UTF-8 repaired.
    public var text: String { String(decoding: bytes, as: UTF8.self) }
}
