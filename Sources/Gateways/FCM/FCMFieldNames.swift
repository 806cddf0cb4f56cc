// The names of FCM's fields in an event's own `fcm`. Protobuf's JSON mapping takes each in snake
// case and in lower camel case; generated messages have snake case. A message with both spellings
// of one field would be refused, or one of the two be taken by chance.

internal import Base
internal import JSON

/// The fields of one object of a message, and of those below it.
internal struct FCMFieldNames: Sendable {
    private struct Field: Sendable {
        let snake: String
        var below = FCMFieldNames()
    }

    /// By either spelling.
    private var fields: [String: Field] = [:]

    /// The names below a message. What belongs to the app or to another standard has no names here:
    /// data, header fields, APNs' payload and the notification of browsers.
    static let message: FCMFieldNames = {
        var names = FCMFieldNames()
        for rule in FCMFieldRule.all { names.add(rule.path.split(separator: ".")) }
        for place in ["android.notification", "android_v2.remote_notification.notification"] {
            for name in ["light_on_duration", "light_off_duration"] {
                names.add("\(place).light_settings.\(name)".split(separator: "."))
            }
        }
        return names
    }()

    private mutating func add(_ path: some Collection<Substring>) {
        guard let name = path.first else { return }
        let snake = String(name)
        var field = fields[snake] ?? Field(snake: snake)
        field.below.add(path.dropFirst())
        fields[snake] = field
        fields[Self.camel(snake)] = field
    }

    /// A name in lower camel case.
    static func camel(_ snake: String) -> String {
        let words = snake.split(separator: "_")
        let rest = words.dropFirst().map { $0.prefix(1).uppercased() + $0.dropFirst() }
        return (words.first.map(String.init) ?? "") + rest.joined()
    }

    private func field(_ name: UnsafeRawBufferPointer) -> Field? {
        fields[String(decoding: name, as: UTF8.self)]
    }

    /// Whether an object has a field in camel case.
    func areMixed(in value: JSONValue) -> Bool {
        guard value.isObject, !fields.isEmpty else { return false }
        var areMixed = false
        value.forEachMember { name, value in
            guard !areMixed, let field = field(name) else { return }
            areMixed = !name.elementsEqual(field.snake.utf8) || field.below.areMixed(in: value)
        }
        return areMixed
    }

    /// Writes an object with the names of its fields in snake case.
    func write(_ value: JSONValue, to writer: ByteWriter) {
        guard value.isObject, !fields.isEmpty else { return value.writeCompact(to: writer) }
        var comma: StaticString = ""
        writer.append(0x7B)
        value.forEachMember { name, value in
            writer.append(comma)
            comma = ","
            let field = field(name)
            if let field {
                writer.append(jsonString: field.snake)
            } else {
                writer.append(jsonString: name)
            }
            writer.append(0x3A)
            (field?.below ?? FCMFieldNames()).write(value, to: writer)
        }
        writer.append(0x7D)
    }
}
