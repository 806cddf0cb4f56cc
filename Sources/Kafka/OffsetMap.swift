// The offsets finished above a commit point, as a short text: it travels in the metadata of the
// commit and tells the next owner what not to do again.
//
// The bytes are tokens, each a number whose low two bits say what its upper bits count:
//
//     0   so many offsets that are not finished
//     1   so many offsets that are finished
//     2   so many bytes that follow, one bit for each offset, lowest bit first, 1 = finished
//
// The first token starts at the commit point; what is behind the last one is not finished. Long
// runs are counted, what alternates is written bit by bit, so that no pattern takes more than an
// eighth of a byte for each offset plus a few bytes. The bytes are written in base64url: some
// clients read back metadata with NUL bytes damaged.

internal import Base

/// Writes and reads the map.
enum OffsetMap {
    /// Below this length a run is cheaper as bits than as a token between two pieces of bits.
    private static let countedRun: Int64 = 40

    private enum Token: UInt64 { case open, finished, bits }

    /// The map of the offsets in `runs` from `base` on. Nil when its text would be longer than
    /// `limit` bytes.
    static func encode(_ runs: OffsetRuns, from base: Int64, limit: Int) -> String? {
        var writer = Writer()
        var position = base
        for run in runs.runs where run.end > base {
            let first = max(run.first, base)
            writer.add(first - position, finished: false)
            writer.add(run.end - first, finished: true)
            position = run.end
            guard writer.bytes.count + writer.pendingBytes <= limit else { return nil }
        }
        let bytes = writer.finish()
        guard (bytes.count * 4 + 2) / 3 <= limit else { return nil }
        return Base64URL.encode(bytes)
    }

    /// The set a map describes; nil when the text is none.
    static func decode(_ text: some StringProtocol, from base: Int64) -> OffsetRuns? {
        guard let bytes = Base64URL.decode(text.utf8) else { return nil }
        var runs = OffsetRuns()
        var position = base
        var index = 0
        while index < bytes.count {
            guard let number = readNumber(bytes, &index), let token = Token(rawValue: number & 3),
                number >> 2 <= UInt64(Limits.offsetMapReach)
            else { return nil }
            let count = Int64(number >> 2)
            guard count <= Limits.offsetMapReach - (position - base) else { return nil }
            switch token {
            case .open: position += count
            case .finished:
                runs.insert(position, upTo: position + count)
                position += count
            case .bits:
                guard count <= Int64(bytes.count - index) else { return nil }
                for byte in bytes[index..<index + Int(count)] {
                    for bit in 0..<Int64(8) where byte >> UInt8(bit) & 1 == 1 {
                        runs.insert(position + bit, upTo: position + bit + 1)
                    }
                    position += 8
                }
                index += Int(count)
            }
        }
        return runs
    }

    private static func readNumber(_ bytes: [UInt8], _ index: inout Int) -> UInt64? {
        var number: UInt64 = 0
        var shift: UInt64 = 0
        while index < bytes.count, shift < 63 {
            let byte = bytes[index]
            index += 1
            number |= UInt64(byte & 0x7F) << shift
            if byte & 0x80 == 0 { return number }
            shift += 7
        }
        return nil
    }

    /// Collects runs into tokens.
    private struct Writer {
        private(set) var bytes: [UInt8] = []
        private var bits: [UInt8] = []
        private var bitCount = 0

        /// Bytes of bits that have no token yet.
        var pendingBytes: Int { bits.count }

        mutating func add(_ count: Int64, finished: Bool) {
            var count = count
            guard count > 0 else { return }
            if count >= OffsetMap.countedRun {
                // A run lends the bits that fill the last byte before it.
                count -= addBits((8 - bitCount % 8) % 8, finished: finished)
                flushBits()
                addNumber(UInt64(count) << 2 | (finished ? Token.finished : .open).rawValue)
            } else {
                _ = addBits(Int(count), finished: finished)
            }
        }

        mutating func finish() -> [UInt8] {
            flushBits()
            return bytes
        }

        private mutating func addBits(_ count: Int, finished: Bool) -> Int64 {
            for _ in 0..<count {
                if bitCount % 8 == 0 { bits.append(0) }
                if finished { bits[bitCount / 8] |= 1 << UInt8(bitCount % 8) }
                bitCount += 1
            }
            return Int64(count)
        }

        private mutating func flushBits() {
            guard !bits.isEmpty else { return }
            addNumber(UInt64(bits.count) << 2 | Token.bits.rawValue)
            bytes.append(contentsOf: bits)
            bits.removeAll(keepingCapacity: true)
            bitCount = 0
        }

        private mutating func addNumber(_ number: UInt64) {
            var rest = number
            while rest >= 0x80 {
                bytes.append(UInt8(rest & 0x7F) | 0x80)
                rest >>= 7
            }
            bytes.append(UInt8(rest))
        }
    }
}
