// The requests of an explanation as commands for a shell: to send one by hand, or to show one on a
// simulated phone. What is encrypted for a device is encrypted as if it were sent now; tokens and
// credentials stay placeholders.

internal import Base
internal import Pipeline

internal enum ExplanationCommands {
    /// What `--format` takes.
    enum Format: String, CaseIterable {
        case curl, simctl
    }

    /// Lines of a shell script.
    static func lines(_ explanation: Explanation, _ format: Format) -> [String] {
        var lines: [String] = []
        for target in explanation.targets {
            if !lines.isEmpty { lines.append("") }
            lines.append(comment("\(target.addressID), \(target.gateway.rawValue)"))
            switch target.answer {
            case .suppressed(let reason): lines.append(comment("suppressed: \(reason)"))
            case .rejected(let reason, let detail):
                lines.append(comment("rejected: \(reason): \(detail)"))
            case .expired: lines.append(comment("expired"))
            case .request(let request) where format == .curl: lines += curl(request, target)
            case .request(let request): lines += simctl(request, target)
            }
        }
        return lines.isEmpty ? [comment("no device is meant: no_devices")] : lines
    }

    private static func curl(
        _ request: Explanation.Request, _ target: Explanation.Target
    ) -> [String] {
        func field(_ name: String) -> String {
            request.fields.first { $0.name == name }?.value ?? ""
        }
        var lines = [comment("put in the token and the credential for <token ...> and ***")]
        if target.gateway == .webpush {
            // Bytes that no shell takes as a word.
            lines.append(comment("what the browser reads: \(request.body)"))
            lines.append("printf %s '\(base64(request.sentBody))' | base64 --decode |")
        }
        lines.append(
            "curl --http2 --request \(quoted(field(":method"))) "
                + quoted("\(field(":scheme"))://\(field(":authority"))\(field(":path"))") + " \\")
        for (name, value) in request.fields where !name.hasPrefix(":") {
            lines.append("  --header \(quoted("\(name): \(value)")) \\")
        }
        let body = String(decoding: request.sentBody, as: UTF8.self)
        lines.append("  --data-binary \(target.gateway == .webpush ? "@-" : quoted(body))")
        return lines
    }

    private static func simctl(
        _ request: Explanation.Request, _ target: Explanation.Target
    ) -> [String] {
        guard target.gateway == .apns else {
            return [comment("simctl shows pushes of APNs only")]
        }
        let topic = request.fields.first { $0.name == "apns-topic" }?.value ?? ""
        let body = String(decoding: request.sentBody, as: UTF8.self)
        return ["printf %s \(quoted(body)) | xcrun simctl push booted \(quoted(topic)) -"]
    }

    /// The alphabet and the padding that `base64` knows.
    private static func base64(_ bytes: [UInt8]) -> String {
        let text = Base64URL.encode(bytes).replacing("-", with: "+").replacing("_", with: "/")
        return text + String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
    }

    /// One word, whatever is in it.
    private static func quoted(_ text: String) -> String {
        "'\(text.replacing("'", with: "'\\''"))'"
    }

    /// A line that does nothing, whatever is in it.
    private static func comment(_ text: String) -> String { "# \(text.printable)" }
}
