// Shortening a text to fit, as a reader would want it: whole characters, then an ellipsis.

internal import Base

internal enum Shortening {
    private static let ellipsis = "…"

    /// The longest beginning of a text that is shorter by at least `excess` bytes, ellipsis
    /// included; nil when not even its first character can stay. `asJSON` counts bytes as they stand in a JSON string.
    static func prefix(of text: String, without excess: Int, asJSON: Bool) -> String? {
        var room = size(of: text[...], asJSON: asJSON) - excess - ellipsis.utf8.count
        // From the front: finding the character before a place may take a look at all before it.
        var end = text.startIndex
        while end < text.endIndex {
            let next = text.index(after: end)
            room -= size(of: text[end..<next], asJSON: asJSON)
            guard room >= 0 else { break }
            end = next
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
