/// Finds the name that somebody probably meant: a key, an option, a command.
public enum NearestName {
    /// The candidate with the fewest edits to `name`, if they are few for its length.
    public static func find(_ name: String, among candidates: [String]) -> String? {
        let limit = max(1, name.utf8.count / 3)
        var best: (name: String, edits: Int)?
        for candidate in candidates {
            let edits = distance(Array(name.utf8), Array(candidate.utf8))
            if edits <= limit && edits < best?.edits ?? .max { best = (candidate, edits) }
        }
        return best?.name
    }

    /// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours.
    private static func distance(_ left: [UInt8], _ right: [UInt8]) -> Int {
        var older: [Int] = []
        var old = Array(0...right.count)
        for row in 0..<left.count {
            var new = [row + 1]
            for column in 0..<right.count {
                let replaced = old[column] + (left[row] == right[column] ? 0 : 1)
                var edits = min(replaced, old[column + 1] + 1, new[column] + 1)
                if row > 0, column > 0, left[row] == right[column - 1],
                    left[row - 1] == right[column]
                {
                    edits = min(edits, older[column - 1] + 1)
                }
                new.append(edits)
            }
            (older, old) = (old, new)
        }
        return old[right.count]
    }
}
