import Base

/// Random documents, valid ones and ones that a few edits made doubtful.
struct RandomDocument {
    var random: SeededRandom

    init(seed: UInt64) { random = SeededRandom(seed: seed) }

    mutating func valid() -> [UInt8] {
        var text = ""
        value(depth: 0, into: &text)
        return Array(text.utf8)
    }

    /// Bytes that are most often nearly JSON.
    mutating func edited() -> [UInt8] {
        var bytes = valid()
        let alphabet = Array("{}[],:\"\\ 01-.eEtfnu\n/".utf8) + [0, 0x1F, 0x80, 0xC3, 0xED, 0xFF]
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            let byte = alphabet[Int.random(in: 0..<alphabet.count, using: &random)]
            let place = Int.random(in: 0...bytes.count, using: &random)
            switch Int.random(in: 0..<5, using: &random) {
            case 0 where place < bytes.count: bytes.remove(at: place)
            case 1 where place < bytes.count: bytes[place] = byte
            case 2: bytes.removeLast(bytes.count - place)
            case 3 where place > 0: bytes += bytes[..<place]
            default: bytes.insert(byte, at: place)
            }
        }
        return bytes
    }

    private mutating func chance(_ percent: Int) -> Bool {
        Int.random(in: 0..<100, using: &random) < percent
    }

    private mutating func space(_ text: inout String) {
        while chance(15) { text += [" ", "\n", "\t", "\r"].randomElement(using: &random) ?? "" }
    }

    private mutating func value(depth: Int, into text: inout String) {
        space(&text)
        switch Int.random(in: 0..<(depth > 5 ? 6 : 10), using: &random) {
        case 0: text += "null"
        case 1: text += chance(50) ? "true" : "false"
        case 2, 3: number(&text)
        case 4, 5: string(&text)
        case 6, 7: array(depth, &text)
        default: object(depth, &text)
        }
        space(&text)
    }

    private mutating func array(_ depth: Int, _ text: inout String) {
        text += "["
        for index in 0..<Int.random(in: 0...5, using: &random) {
            if index > 0 { text += "," }
            value(depth: depth + 1, into: &text)
        }
        space(&text)
        text += "]"
    }

    private mutating func object(_ depth: Int, _ text: inout String) {
        text += "{"
        for index in 0..<Int.random(in: 0...5, using: &random) {
            if index > 0 { text += "," }
            space(&text)
            string(&text)
            space(&text)
            text += ":"
            value(depth: depth + 1, into: &text)
        }
        space(&text)
        text += "}"
    }

    private mutating func number(_ text: inout String) {
        if chance(30) { text += "-" }
        text += String(
            UInt64.random(
                in: 0...(UInt64.max >> UInt64.random(in: 0..<64, using: &random)), using: &random))
        if chance(30) { text += "." + String(UInt32.random(in: 0...9999, using: &random)) + "0" }
        if chance(20) { text += ["e5", "E-7", "e+08"].randomElement(using: &random) ?? "" }
    }

    private mutating func string(_ text: inout String) {
        let pieces = [
            "a", "id", "user", " ", "é", "語", "🎉", "\\n", "\\\"", "\\\\", "\\/", "\\u0041",
            "\\u00e9", "\\uD83C\\uDF89", "\\u0000", "{", "}", "[", ",", ":", "some longer text ",
        ]
        text += "\""
        for _ in 0..<Int.random(in: 0...6, using: &random) {
            text += pieces.randomElement(using: &random) ?? ""
        }
        text += "\""
    }
}
