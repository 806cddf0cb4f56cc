// What is odd about a record that is an event nevertheless: words that nobody reads, most often
// misspelt ones, and names of devices that there are none of.

internal import Base
internal import Config
internal import Gateways
internal import JSON
internal import Pipeline

internal enum EventLint {
    /// The systems that registrations name (`push.devices.schema.json`).
    static let platforms = [
        "ios", "ipados", "macos", "watchos", "tvos", "visionos", "android", "web",
    ]

    /// Attributes of CloudEvents 1.0, and extensions of its own documents.
    private static let cloudAttributes = [
        "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema",
        "data", "traceparent", "tracestate", "partitionkey", "sequence", "sampledrate",
    ]

    /// One line for each oddity, in the record's order.
    static func warnings(_ value: [UInt8]) -> [String] {
        let parser = JSONParser(maximumBytes: 8 << 20)
        guard let root = try? parser.parse(value), root.isObject else { return [] }
        var warnings: [String] = []
        if root["specversion"]?.string != nil, root["user_id"] == nil {
            warnings += misspeltExtensions(root)
            if let data = root["data"] { warnings += words(of: data["notification"], "data.") }
        } else {
            warnings += strangers(in: root, EventCheck.fields, "")
            warnings += words(of: root["notification"], "")
            if root["notification"] == nil, let payload = root["payload"] {
                warnings += words(of: payload["notification"], "payload.")
            }
            for name in ["only", "except"] {
                guard let lists = root[name], lists.isObject else { continue }
                warnings += strangers(in: lists, EventCheck.filterFields, "\(name).")
                warnings += unknown(lists["platforms"], platforms, "\(name).platforms")
                warnings += unknown(
                    lists["gateways"], Gateway.allCases.map(\.rawValue), "\(name).gateways")
            }
            if let to = root["to"], to.isObject {
                warnings += strangers(in: to, EventCheck.targetFields, "to.")
            }
        }
        return warnings
    }

    private static func words(of notification: JSONValue?, _ place: String) -> [String] {
        guard let notification, notification.isObject else { return [] }
        return strangers(in: notification, NotificationContent.memberNames, "\(place)notification.")
    }

    /// Members that nobody reads.
    private static func strangers(
        in object: JSONValue, _ known: [String], _ place: String
    ) -> [String] {
        var found: [String] = []
        object.forEachMember { bytes, _ in
            let name = String(decoding: bytes, as: UTF8.self)
            guard !known.contains(name) else { return }
            found.append("\(place)\(name) is not known and is ignored" + advice(name, known))
        }
        return found
    }

    /// Extensions are anybody's; one that is nearly ours was most likely meant to be.
    private static func misspeltExtensions(_ root: JSONValue) -> [String] {
        var found: [String] = []
        root.forEachMember { bytes, _ in
            let name = String(decoding: bytes, as: UTF8.self)
            guard !cloudAttributes.contains(name), !EventCheck.extensions.contains(name),
                !EventCheck.fields.contains(name),
                let near = NearestName.find(name.lowercased(), among: EventCheck.extensions)
            else { return }
            found.append("\(name) is not known and is ignored; did you mean \(near)?")
        }
        return found
    }

    /// Elements that name nothing.
    private static func unknown(
        _ list: JSONValue?, _ known: [String], _ place: String
    ) -> [String] {
        guard let list, list.isArray else { return [] }
        var found: [String] = []
        list.forEachElement { element in
            guard let name = element.string, !known.contains(name) else { return }
            let advice =
                NearestName.find(name.lowercased(), among: known).map { "did you mean \($0)?" }
                ?? "known are " + known.joined(separator: ", ")
            found.append("\(place): no device has \(name); \(advice)")
        }
        return found
    }

    private static func advice(_ name: String, _ known: [String]) -> String {
        NearestName.find(name.lowercased(), among: known).map { "; did you mean \($0)?" } ?? ""
    }
}
