import Base

/// Makes inputs: real ones damaged in the ways that networks, bugs and strangers damage them, and
/// pieces of them put together at random.
struct Mutator {
    let corpus: [[UInt8]]
    /// Words that matter to the reader under test.
    let words: [[UInt8]]

    init(_ corpus: [String], words: [String] = []) {
        self.corpus = corpus.map { Array($0.utf8) }
        self.words = (words + Self.pieces).map { Array($0.utf8) }
    }

    /// No number is beyond a double: such a text is JSON, but Foundation, which says here what is
    /// JSON, refuses it.
    private static let pieces = [
        "{", "}", "[", "]", "\"", ":", ",", "null", "true", "false", "0", "-1", "\\u0000",
        "\\ud800", "\u{0}", "\u{FEFF}", "9223372036854775807", "-9223372036854775808",
        "18446744073709551616", "0.1", "\"\"", "{}", "[]", " ", "\t", "\r\n", "\u{1F389}", "é",
        "\"a\":", "\\", "/", "<html>", "%", "..", "'",
    ]

    /// The next input, at most 64 KiB.
    func next(_ random: inout SeededRandom) -> [UInt8] {
        var bytes: [UInt8] = []
        switch Int.random(in: 0..<10, using: &random) {
        case 0: bytes = noise(&random)
        case 1: bytes = patchwork(&random)
        default: bytes = corpus.randomElement(using: &random) ?? []
        }
        for _ in 0..<Int.random(in: 0...4, using: &random) { mutate(&bytes, &random) }
        return Array(bytes.prefix(64 << 10))
    }

    private func noise(_ random: inout SeededRandom) -> [UInt8] {
        (0..<Int.random(in: 0..<400, using: &random)).map { _ in
            UInt8(truncatingIfNeeded: random.next())
        }
    }

    private func patchwork(_ random: inout SeededRandom) -> [UInt8] {
        (0..<Int.random(in: 0..<30, using: &random)).flatMap { _ in
            words.randomElement(using: &random) ?? []
        }
    }

    private func mutate(_ bytes: inout [UInt8], _ random: inout SeededRandom) {
        let place = Int.random(in: 0...bytes.count, using: &random)
        let length = min(Int.random(in: 1...24, using: &random), bytes.count - place)
        switch Int.random(in: 0..<9, using: &random) {
        case 0: bytes.insert(contentsOf: words.randomElement(using: &random) ?? [], at: place)
        case 1: bytes.removeSubrange(place..<place + length)
        case 2: bytes = Array(bytes.prefix(place))
        case 3: bytes.insert(contentsOf: bytes[place..<place + length], at: place)
        case 4: if place < bytes.count { bytes[place] ^= 1 << UInt8(random.next() & 7) }
        case 5: if place < bytes.count { bytes[place] = UInt8(truncatingIfNeeded: random.next()) }
        case 6:
            let other = corpus.randomElement(using: &random) ?? []
            bytes =
                Array(bytes.prefix(place))
                + other.suffix(Int.random(in: 0...other.count, using: &random))
        case 7: replaceWord(in: &bytes, &random)
        default:
            // Deep nesting, and long runs of one byte.
            let byte =
                [UInt8](arrayLiteral: 0x5B, 0x7B, 0x22, 0x20)
                .randomElement(using: &random) ?? 0x5B
            let run = [UInt8](repeating: byte, count: Int.random(in: 1...2000, using: &random))
            bytes.insert(contentsOf: run, at: place)
        }
    }

    /// Puts another value where a string or a number stands.
    private func replaceWord(in bytes: inout [UInt8], _ random: inout SeededRandom) {
        let colons = bytes.indices.filter { bytes[$0] == 0x3A }
        guard let colon = colons.randomElement(using: &random) else { return }
        let rest = bytes[(colon + 1)...]
        let end = rest.firstIndex { $0 == 0x2C || $0 == 0x7D || $0 == 0x5D } ?? bytes.endIndex
        bytes.replaceSubrange(colon + 1..<end, with: words.randomElement(using: &random) ?? [])
    }
}
