// Shortening a text to fit, as a reader would want it: whole characters, then an ellipsis.

internal import Base

internal enum Shortening {
    private static let ellipsis = "…"

    /// The longest beginning of a text that is shorter by at least `excess` bytes, ellipsis
    /// included; nil when not even its first character can stay. `asJSON` counts bytes as they stand in a JSON string.
    static func prefix(of text: String, without excess: Int, asJSON: Bool) -> String? {
        let wanted = excess + ellipsis.utf8.count
        var removed = 0
        var end = text.endIndex
        while removed < wanted {
            guard end > text.startIndex else { return nil }
            let start = text.index(before: end)
            removed += size(of: text[start..<end], asJSON: asJSON)
            end = start
        }
        var kept = text[..<end]
        while kept.last?.isWhitespace == true { kept.removeLast() }
        return kept.isEmpty ? nil : kept + ellipsis
    }

    private static func size(of text: Substring, asJSON: Bool) -> Int {
        guard asJSON else { return text.utf8.count }
        return text.utf8.reduce(0) { count, byte in
            switch byte {
            case 0x22, 0x5C, 0x09, 0x0A, 0x0D: count + 2
            case 0..<0x20: count + 6
            default: count + 1
            }
        }
    }
}
