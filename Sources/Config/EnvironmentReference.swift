/// References to environment variables inside a scalar: `${NAME}`, or `${NAME:-default}` which
/// gives the default when the variable is unset or empty. `$${` stands for a literal `${`.
internal enum EnvironmentReference {
    struct Unresolved: Error {
        var message: String
    }

    /// The text with every reference replaced.
    static func resolve(
        _ text: String, in environment: [String: String]
    ) throws(Unresolved) -> String {
        var result = ""
        var rest = Substring(text)
        while let dollar = rest.firstIndex(of: "$") {
            result += rest[..<dollar]
            rest = rest[dollar...]
            if rest.hasPrefix("$${") {
                result += "${"
                rest = rest.dropFirst(3)
            } else if rest.hasPrefix("${") {
                guard let end = rest.firstIndex(of: "}") else {
                    throw Unresolved(message: "${ without its closing }")
                }
                let inner = rest[rest.index(rest.startIndex, offsetBy: 2)..<end]
                result += try value(of: inner, in: environment)
                rest = rest[rest.index(after: end)...]
            } else {
                result += "$"
                rest = rest.dropFirst()
            }
        }
        return result + rest
    }

    /// Whether the text is nothing but one reference without a default: the only way in which a
    /// secret may stand in the file.
    static func isOnlyReference(_ text: String) -> Bool {
        guard text.hasPrefix("${"), text.hasSuffix("}") else { return false }
        return isName(text.dropFirst(2).dropLast())
    }

    private static func value(
        of reference: Substring, in environment: [String: String]
    ) throws(Unresolved) -> String {
        var name = reference
        var fallback: Substring?
        if let colon = reference.firstIndex(of: ":"), reference[colon...].hasPrefix(":-") {
            name = reference[..<colon]
            fallback = reference[colon...].dropFirst(2)
        }
        guard isName(name) else {
            throw Unresolved(message: "${...} holds no name of an environment variable")
        }
        let value = environment[String(name)] ?? ""
        if !value.isEmpty { return value }
        if let fallback { return String(fallback) }
        if environment[String(name)] != nil { return "" }
        throw Unresolved(message: "the environment variable \(name) is not set")
    }

    private static func isName(_ text: Substring) -> Bool {
        guard let first = text.utf8.first, !(0x30...0x39).contains(first) else { return false }
        return text.utf8.allSatisfy { byte in
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x5F: true
            default: false
            }
        }
    }
}
