// What can be done to a value on its way into a text.

/// One format of a placeholder.
internal enum TemplateFormat: Sendable, Hashable {
    case upper, lower
    /// At most so many characters as a reader counts them, an ellipsis included.
    case truncate(Int)
    /// A number of the reader's locale; with a fixed number of digits behind the point, or as many
    /// as there are.
    case number(Int?)
    /// A date, a time of day, or both.
    case date(DateForm)

    /// The most characters that `truncate` can be asked for.
    static let truncateMax = 10_000
    /// The most digits behind the point.
    static let fractionDigitsMax = 10

    /// Whether it reads the value itself and so has to stand first.
    var readsValue: Bool {
        switch self {
        case .number, .date: true
        case .upper, .lower, .truncate: false
        }
    }

    /// Whether the text depends on the reader's locale.
    var isLocal: Bool {
        switch self {
        case .truncate: false
        case .upper, .lower, .number, .date: true
        }
    }

    /// Reads `name` or `name(argument)`.
    init(_ text: String) throws(TemplateSyntaxError) {
        var name = text
        var argument: String?
        if let open = text.firstIndex(of: "("), text.hasSuffix(")") {
            name = String(text[..<open])
            argument = String(text[text.index(after: open)...].dropLast())
        }
        switch name {
        case "upper", "lower":
            guard argument == nil else { throw TemplateSyntaxError("\(name) takes no argument") }
            self = name == "upper" ? .upper : .lower
        case "truncate":
            guard let count = argument.flatMap({ Int($0) }), (1...Self.truncateMax).contains(count)
            else {
                throw TemplateSyntaxError(
                    "truncate needs a number of characters from 1 to \(Self.truncateMax), such as"
                        + " truncate(40)")
            }
            self = .truncate(count)
        case "number":
            guard let argument else {
                self = .number(nil)
                return
            }
            guard let digits = Int(argument), (0...Self.fractionDigitsMax).contains(digits) else {
                throw TemplateSyntaxError(
                    "number takes the digits behind the point, 0 to \(Self.fractionDigitsMax)")
            }
            self = .number(digits)
        case "date", "time", "datetime":
            self = .date(try DateForm(name, argument))
        default:
            throw TemplateSyntaxError(
                "\(name) is no format; there are upper, lower, truncate, number, date, time and"
                    + " datetime")
        }
    }
}

/// How a point in time is written.
internal enum DateForm: Sendable, Hashable {
    enum Length: String, Sendable, CaseIterable {
        case full, long, medium, short
    }

    case lengths(date: Length?, time: Length?)
    /// The fields that are wanted, in letters of Unicode's date format patterns; their order and
    /// marks are the locale's.
    case skeleton(String)

    fileprivate init(_ name: String, _ argument: String?) throws(TemplateSyntaxError) {
        let length = argument.flatMap { Length(rawValue: $0) }
        if let argument, length == nil {
            guard name == "date", Self.isSkeleton(argument) else {
                let names = Length.allCases.map(\.rawValue).joined(separator: ", ")
                throw TemplateSyntaxError(
                    "\(name) takes one of \(names)"
                        + (name == "date" ? ", or the wanted fields such as EEEdMMMjmm" : ""))
            }
            self = .skeleton(argument)
            return
        }
        switch name {
        case "date": self = .lengths(date: length ?? .medium, time: nil)
        case "time": self = .lengths(date: nil, time: length ?? .short)
        default: self = .lengths(date: length ?? .medium, time: .short)
        }
    }

    private static func isSkeleton(_ text: String) -> Bool {
        (1...32).contains(text.utf8.count)
            && text.allSatisfy { "GyYMLwWdDEecabBhHkKjJmsSzZvVxXOQq".contains($0) }
    }
}
