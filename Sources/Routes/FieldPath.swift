// Paths into an event: `payload.order.lines.0.name`, `labels.team`, `user_id`. A name that holds a
// dot or another mark of the syntax stands in single quotes.

internal import Base
internal import JSON

/// A field's value.
internal enum FieldValue {
    /// There is none: not there, or null.
    case missing
    case json(JSONValue)
    case text(String)
    case integer(Int64)
    case time(UnixMillis)
}

/// A path into an event.
internal struct FieldPath: Sendable, Hashable {
    /// Where a path starts.
    enum Root: String, CaseIterable {
        case payload, labels, id, type
        case userID = "user_id"
        case app, source, time, unread, cursor, count
    }

    /// A step down: a member by its name, or an element by its number.
    struct Step: Hashable {
        let name: [UInt8]
        let index: Int?
    }

    /// The path as it is written.
    let text: String
    let root: Root
    let steps: [Step]

    /// Reads a path.
    init(_ text: String) throws(TemplateSyntaxError) {
        let names = try Self.split(text)
        guard let first = names.first, let root = Root(rawValue: first) else {
            let roots = Root.allCases.map(\.rawValue).joined(separator: ", ")
            throw TemplateSyntaxError(
                names.count == 1 && names[0].isEmpty
                    ? "a path is missing"
                    : "\(text): a path starts with one of \(roots); business data is"
                        + " payload.\(text)")
        }
        self.text = text
        self.root = root
        steps = names.dropFirst().map { Step(name: Array($0.utf8), index: Self.index($0)) }
        switch root {
        case .payload, .labels:
            guard !steps.isEmpty else {
                throw TemplateSyntaxError("\(text): name a field of it, such as \(text).name")
            }
        case .cursor:
            guard names.count == 2, names[1] == "log" || names[1] == "seq" else {
                throw TemplateSyntaxError("\(text): a cursor has log and seq")
            }
        default:
            guard steps.isEmpty else {
                throw TemplateSyntaxError("\(text): \(first) has no fields")
            }
        }
    }

    private static func index(_ name: String) -> Int? {
        name.utf8.count <= 6 && name.utf8.allSatisfy { (0x30...0x39).contains($0) }
            ? Int(name) : nil
    }

    /// The names between the dots, quotes taken off.
    private static func split(_ text: String) throws(TemplateSyntaxError) -> [String] {
        var names: [String] = []
        var name = ""
        var isQuoted = false
        var wasQuoted = false
        for character in text {
            if character == "'" {
                isQuoted.toggle()
                wasQuoted = true
            } else if character == "." && !isQuoted {
                guard !name.isEmpty || wasQuoted else {
                    throw TemplateSyntaxError("\(text): a name is missing beside a dot")
                }
                names.append(name)
                (name, wasQuoted) = ("", false)
            } else if !isQuoted && !isNameCharacter(character) {
                throw TemplateSyntaxError(
                    "\(text): a name with other marks than letters, digits, _ and - stands in"
                        + " single quotes")
            } else {
                name.append(character)
            }
        }
        guard !isQuoted else { throw TemplateSyntaxError("\(text): a quote is not closed") }
        guard !name.isEmpty || names.isEmpty || wasQuoted else {
            throw TemplateSyntaxError("\(text): a name is missing beside a dot")
        }
        return names + [name]
    }

    private static func isNameCharacter(_ character: Character) -> Bool {
        character.isLetter || character.isNumber || character == "_" || character == "-"
    }

    /// Whether one of both is in the other, or they are the same, however they are written.
    func overlaps(_ other: FieldPath) -> Bool {
        root == other.root && zip(steps, other.steps).allSatisfy { $0 == $1 }
    }

    /// The value in an event.
    func value(in event: borrowing RouteEvent) -> FieldValue {
        switch root {
        case .payload: descend(from: event.payload)
        case .labels: descend(from: event.labels)
        case .id: .text(event.id)
        case .type: .text(event.type)
        case .userID: .text(event.userID)
        case .app: .text(event.app)
        case .source: event.source.isEmpty ? .missing : .text(event.source)
        case .time: .time(event.time)
        case .unread: event.unread.map { .integer($0) } ?? .missing
        case .count: .integer(event.count)
        case .cursor:
            event.cursor.map { cursor in
                steps[0].name.first == 0x6C ? .text(cursor.log) : .integer(cursor.seq)
            } ?? .missing
        }
    }

    private func descend(from value: JSONValue?) -> FieldValue {
        guard var value else { return .missing }
        for step in steps {
            let next: JSONValue? =
                if let index = step.index, value.isArray {
                    value.element(at: index)
                } else {
                    step.name.withUnsafeBytes { value.member(named: $0) }
                }
            guard let next else { return .missing }
            value = next
        }
        return value.isNull ? .missing : .json(value)
    }
}

extension JSONValue {
    /// An element of an array; nil when there are not so many.
    fileprivate func element(at index: Int) -> JSONValue? {
        guard index < count else { return nil }
        var position = 0
        var found: JSONValue?
        forEachElement { element in
            if position == index { found = element }
            position += 1
        }
        return found
    }
}
