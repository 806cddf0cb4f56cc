// Values that have no place in a push: recognised by their own check digits or form, so that an
// author is warned before a customer is.

internal import Base

internal enum SensitiveValues {
    /// What a text seems to hold, in words.
    static func found(in text: String) -> [String] {
        var found: [String] = []
        // What is written for people to read often has blanks that no line is broken at.
        let bytes = Array(
            text.replacing("\u{A0}", with: " ").replacing("\u{202F}", with: " ").utf8)
        if runs(in: bytes, where: isDigitOrGap).contains(where: holdsCardNumber) {
            found.append("a card number")
        }
        if runs(in: bytes, where: isCapitalOrDigit).contains(where: isIBAN)
            || runs(in: bytes, where: { isCapitalOrDigit($0) || $0 == 0x20 })
                .contains(where: holdsGroupedIBAN)
        {
            found.append("an IBAN")
        }
        if runs(in: bytes, where: isTokenByte).contains(where: isJWT) { found.append("a JWT") }
        return found
    }

    /// The longest stretches of bytes of one sort.
    private static func runs(
        in bytes: [UInt8], where isPart: (UInt8) -> Bool
    ) -> [ArraySlice<UInt8>] {
        bytes.split { !isPart($0) }
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }

    private static func isDigitOrGap(_ byte: UInt8) -> Bool {
        isDigit(byte) || byte == 0x20 || byte == 0x2D
    }

    private static func isCapitalOrDigit(_ byte: UInt8) -> Bool {
        isDigit(byte) || (0x41...0x5A).contains(byte)
    }

    private static func isTokenByte(_ byte: UInt8) -> Bool {
        isCapitalOrDigit(byte) || (0x61...0x7A).contains(byte) || byte == 0x2D || byte == 0x5F
            || byte == 0x2E
    }

    /// A card number as one piece, or in groups such as 4-4-4-4 and 4-6-5, whatever other numbers
    /// stand before and behind it.
    private static func holdsCardNumber(_ run: ArraySlice<UInt8>) -> Bool {
        let groups = run.split { !isDigit($0) }
        return groups.indices.contains { first in
            if isCardNumber(groups[first]) { return true }
            var digits: [UInt8] = []
            for group in groups[first...] where digits.count < 19 {
                guard (3...7).contains(group.count) else { return false }
                digits += group
                if isCardNumber(digits[...]) { return true }
            }
            return false
        }
    }

    /// Thirteen to nineteen digits with a network's first digit and Luhn's check digit.
    private static func isCardNumber(_ text: ArraySlice<UInt8>) -> Bool {
        let digits = text.map { Int($0 - 0x30) }
        guard (13...19).contains(digits.count), let first = digits.first, (3...6).contains(first)
        else { return false }
        var sum = 0
        for (place, digit) in digits.reversed().enumerated() {
            let weighed = place % 2 == 0 ? digit : digit * 2
            sum += weighed > 9 ? weighed - 9 : weighed
        }
        return sum % 10 == 0
    }

    /// An IBAN as it is printed: in groups of four, the last of which may be shorter.
    private static func holdsGroupedIBAN(_ run: ArraySlice<UInt8>) -> Bool {
        let groups = run.split(separator: 0x20)
        return groups.indices.contains { first in
            var text: [UInt8] = []
            for group in groups[first...] where text.count < 34 {
                text += group
                if isIBAN(text[...]) { return true }
                guard group.count == 4 else { return false }
            }
            return false
        }
    }

    /// ISO 13616: country, check digits, account; the whole is 1 modulo 97.
    private static func isIBAN(_ run: ArraySlice<UInt8>) -> Bool {
        let text = Array(run)
        guard (15...34).contains(text.count), !isDigit(text[0]), !isDigit(text[1]),
            isDigit(text[2]), isDigit(text[3])
        else { return false }
        var rest = 0
        for byte in text[4...] + text[..<4] {
            rest =
                isDigit(byte)
                ? (rest * 10 + Int(byte - 0x30)) % 97 : (rest * 100 + Int(byte - 0x41) + 10) % 97
        }
        return rest == 1
    }

    /// Three parts of base64url of which the first two are JSON objects.
    private static func isJWT(_ run: ArraySlice<UInt8>) -> Bool {
        let parts = run.split(separator: 0x2E, omittingEmptySubsequences: false)
        return parts.count == 3 && parts[0].starts(with: "eyJ".utf8)
            && parts[1].starts(with: "eyJ".utf8) && !parts[2].isEmpty
    }
}
