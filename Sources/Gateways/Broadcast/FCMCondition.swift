// Conditions over FCM topics: `'a' in topics && ('b' in topics || !('c' in topics))`, with at most
// five topics. What FCM would refuse is refused here, with the rule that it breaks.

/// A reader of conditions: recursive descent over the bytes; the depth is bounded.
internal struct FCMCondition {
    private let bytes: [UInt8]
    private var index = 0
    private var depth = 0
    private var topics = 0

    private init(_ text: String) { bytes = Array(text.utf8) }

    /// Throws the rule that a condition breaks.
    static func check(_ text: String) throws(BroadcastNameError) {
        guard (1...FCMLimits.conditionBytes).contains(text.utf8.count) else {
            throw BroadcastNameError(
                "an FCM condition has 1 to \(FCMLimits.conditionBytes) bytes")
        }
        var condition = FCMCondition(text)
        try condition.expression()
        guard condition.peek() == nil else {
            throw condition.error("&& or || between two topics")
        }
    }

    private mutating func expression() throws(BroadcastNameError) {
        try term()
        while let byte = peek(), byte == UInt8(ascii: "&") || byte == UInt8(ascii: "|") {
            guard index + 1 < bytes.count, bytes[index + 1] == byte else {
                throw error("&& or ||")
            }
            index += 2
            try term()
        }
    }

    private mutating func term() throws(BroadcastNameError) {
        while peek() == UInt8(ascii: "!") { index += 1 }
        switch peek() {
        case UInt8(ascii: "("):
            index += 1
            depth += 1
            guard depth <= FCMLimits.conditionDepth else {
                throw BroadcastNameError(
                    "an FCM condition has at most \(FCMLimits.conditionDepth) parentheses in "
                        + "each other")
            }
            try expression()
            guard peek() == UInt8(ascii: ")") else { throw error("a closing parenthesis") }
            index += 1
            depth -= 1
        case UInt8(ascii: "'"): try topic()
        default: throw error("a topic as in 'news' in topics")
        }
    }

    private mutating func topic() throws(BroadcastNameError) {
        index += 1
        let start = index
        while index < bytes.count, bytes[index] != UInt8(ascii: "'") { index += 1 }
        guard index < bytes.count else { throw error("the quote that closes a topic's name") }
        try FCMTopicName.check(String(decoding: bytes[start..<index], as: UTF8.self))
        index += 1
        topics += 1
        guard topics <= FCMLimits.conditionTopics else {
            throw BroadcastNameError(
                "an FCM condition has at most \(FCMLimits.conditionTopics) topics")
        }
        guard word("in"), word("topics") else { throw error("in topics behind a topic's name") }
    }

    private mutating func word(_ word: StaticString) -> Bool {
        _ = peek()
        let count = word.utf8CodeUnitCount
        let expected = UnsafeBufferPointer(start: word.utf8Start, count: count)
        guard bytes[index...].starts(with: expected) else { return false }
        index += count
        // `intopics` is no word, `topics)` ends one.
        guard index < bytes.count else { return true }
        return !FCMTopicName.isAllowed(bytes[index])
    }

    /// The next byte that is no blank.
    private mutating func peek() -> UInt8? {
        while index < bytes.count, bytes[index] == 0x20 { index += 1 }
        return index < bytes.count ? bytes[index] : nil
    }

    private func error(_ expected: String) -> BroadcastNameError {
        BroadcastNameError(
            "an FCM condition joins topics in single quotes with &&, ||, ! and parentheses; at "
                + "byte \(index) there should be \(expected)")
    }
}
