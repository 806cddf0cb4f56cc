// A JSON reader written straight from RFC 8259's grammar, slow and obvious: the model that the
// parser is compared with.

/// A document as a tree; numbers keep their text, objects their order and repeated names.
indirect enum Tree: Equatable {
    case null
    case bool(Bool)
    case number(String)
    case string([UInt8])
    case array([Tree])
    case object([Member])

    struct Member: Equatable {
        var name: [UInt8]
        var value: Tree
    }
}

struct ReferenceParser {
    struct Refused: Error {}

    private let bytes: [UInt8]
    private var position = 0
    private let depth: Int

    static func parse(_ bytes: [UInt8], depth: Int = 64) -> Tree? {
        guard String(validating: bytes, as: UTF8.self) != nil else { return nil }
        var parser = ReferenceParser(bytes: bytes, depth: depth)
        guard let tree = try? parser.value(0) else { return nil }
        parser.space()
        return parser.position == bytes.count ? tree : nil
    }

    private init(bytes: [UInt8], depth: Int) {
        self.bytes = bytes
        self.depth = depth
    }

    private var peek: UInt8? { position < bytes.count ? bytes[position] : nil }

    private mutating func space() {
        while let byte = peek, [0x20, 0x09, 0x0A, 0x0D].contains(byte) { position += 1 }
    }

    private mutating func take() throws -> UInt8 {
        guard let byte = peek else { throw Refused() }
        position += 1
        return byte
    }

    private mutating func expect(_ text: String) throws {
        for byte in text.utf8 where try take() != byte { throw Refused() }
    }

    private mutating func value(_ level: Int) throws -> Tree {
        space()
        switch peek {
        case UInt8(ascii: "{"): return try object(level)
        case UInt8(ascii: "["): return try array(level)
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "t"):
            try expect("true")
            return .bool(true)
        case UInt8(ascii: "f"):
            try expect("false")
            return .bool(false)
        case UInt8(ascii: "n"):
            try expect("null")
            return .null
        default: return .number(try number())
        }
    }

    private mutating func object(_ level: Int) throws -> Tree {
        if level >= depth { throw Refused() }
        position += 1
        var members: [Tree.Member] = []
        space()
        if peek == UInt8(ascii: "}") {
            position += 1
            return .object([])
        }
        while true {
            space()
            let name = try string()
            space()
            try expect(":")
            members.append(.init(name: name, value: try value(level + 1)))
            space()
            switch try take() {
            case UInt8(ascii: ","): continue
            case UInt8(ascii: "}"): return .object(members)
            default: throw Refused()
            }
        }
    }

    private mutating func array(_ level: Int) throws -> Tree {
        if level >= depth { throw Refused() }
        position += 1
        var elements: [Tree] = []
        space()
        if peek == UInt8(ascii: "]") {
            position += 1
            return .array([])
        }
        while true {
            elements.append(try value(level + 1))
            space()
            switch try take() {
            case UInt8(ascii: ","): continue
            case UInt8(ascii: "]"): return .array(elements)
            default: throw Refused()
            }
        }
    }

    private mutating func string() throws -> [UInt8] {
        try expect("\"")
        var text: [UInt8] = []
        while true {
            let byte = try take()
            switch byte {
            case 0..<0x20: throw Refused()
            case UInt8(ascii: "\""): return text
            case UInt8(ascii: "\\"): text += try escape()
            default: text.append(byte)
            }
        }
    }

    private mutating func escape() throws -> [UInt8] {
        switch try take() {
        case UInt8(ascii: "b"): return [0x08]
        case UInt8(ascii: "f"): return [0x0C]
        case UInt8(ascii: "n"): return [0x0A]
        case UInt8(ascii: "r"): return [0x0D]
        case UInt8(ascii: "t"): return [0x09]
        case UInt8(ascii: "u"):
            var units = [try unit()]
            if UTF16.isLeadSurrogate(units[0]) {
                try expect("\\u")
                units.append(try unit())
                guard UTF16.isTrailSurrogate(units[1]) else { throw Refused() }
            } else if UTF16.isTrailSurrogate(units[0]) {
                throw Refused()
            }
            return Array(String(decoding: units, as: UTF16.self).utf8)
        case let byte where Array("\"\\/".utf8).contains(byte): return [byte]
        default: throw Refused()
        }
    }

    private mutating func unit() throws -> UInt16 {
        var value: UInt16 = 0
        for _ in 0..<4 {
            let digit = try take()
            guard digit != UInt8(ascii: "+"), digit != UInt8(ascii: "-"),
                let nibble = UInt16(String(UnicodeScalar(digit)), radix: 16)
            else { throw Refused() }
            value = value << 4 | nibble
        }
        return value
    }

    private mutating func number() throws -> String {
        let start = position
        if peek == UInt8(ascii: "-") { position += 1 }
        if peek == UInt8(ascii: "0") { position += 1 } else { try digits() }
        if peek == UInt8(ascii: ".") {
            position += 1
            try digits()
        }
        if peek == UInt8(ascii: "e") || peek == UInt8(ascii: "E") {
            position += 1
            if peek == UInt8(ascii: "+") || peek == UInt8(ascii: "-") { position += 1 }
            try digits()
        }
        return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    private mutating func digits() throws {
        let start = position
        while let byte = peek, byte >= 0x30 && byte <= 0x39 { position += 1 }
        if position == start { throw Refused() }
    }
}
