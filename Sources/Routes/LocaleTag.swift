// Locales as devices name them: `de-AT`, `zh_Hant_TW`, `en_GB.UTF-8`.

/// A locale in one spelling. What has an impossible form is none.
internal struct LocaleTag: Sendable, Hashable {
    /// Language, then script, region and variants, in lower case; at least the language.
    let subtags: [String]

    /// Reads a name with hyphens or underscores.
    init?(_ text: String) {
        guard text.utf8.count <= 64 else { return nil }
        let name = text.prefix { $0 != "." && $0 != "@" }
        var subtags = name.split(omittingEmptySubsequences: false) { $0 == "-" || $0 == "_" }
            .map { $0.lowercased() }
        guard subtags.count <= 6, (2...3).contains(subtags[0].utf8.count),
            subtags[0].utf8.allSatisfy({ (0x61...0x7A).contains($0) }),
            subtags.allSatisfy({ (1...8).contains($0.utf8.count) && $0.utf8.allSatisfy(isPlain) })
        else { return nil }
        subtags[0] = Self.renamed[subtags[0]] ?? subtags[0]
        // Chinese differs by script, and many devices name only the region.
        if subtags[0] == "zh", subtags.count == 2, subtags[1].utf8.count == 2 {
            subtags.insert(["tw", "hk", "mo"].contains(subtags[1]) ? "hant" : "hans", at: 1)
        }
        self.subtags = subtags
    }

    private init(language: String) { subtags = [language] }

    static let english = LocaleTag(language: "en")

    /// Names that old systems still send.
    private static let renamed = ["iw": "he", "in": "id", "ji": "yi", "no": "nb"]

    /// The language.
    var language: String { subtags[0] }

    /// The name for looking up and for ICU.
    var name: String { subtags.joined(separator: "-") }

    /// This name, then the less and less exact ones.
    var lineage: [String] {
        subtags.indices.reversed().map { subtags[...$0].joined(separator: "-") }
    }
}

private func isPlain(_ byte: UInt8) -> Bool {
    (0x61...0x7A).contains(byte) || (0x30...0x39).contains(byte)
}
