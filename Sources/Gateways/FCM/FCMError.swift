internal import Base
internal import JSON

/// An error body of FCM (google.rpc.Status), as far as it can be read.
///
/// `details` is an unordered mixture of types: all entries are searched, each recognised by the
/// end of its `@type`. A page of HTML, an empty body or half a JSON text leave every field empty.
internal struct FCMError {
    /// The FCM code, such as `UNREGISTERED`.
    var code: String?
    /// The status name, such as `NOT_FOUND`.
    var status: String?
    /// The message, cleaned.
    var detail: String
    /// The message as sent, for the one sentence that tells a bad token from a bad payload.
    var message = ""
    /// What APNs told FCM.
    var apnsReason: Reason?
    /// Whether a field was named as wrong.
    var namesField = false
    /// Whether the field that was named is the address.
    var namesAddress = false
    /// Whether a quota was exceeded, and it was that of one device.
    var isDeviceQuota = false
    /// Whether a quota was exceeded, and it was said to be the project's.
    var isProjectQuota = false
    /// The wait of a RetryInfo.
    var retryDelay: TimeSpan?

    init(_ bytes: UnsafeRawBufferPointer, _ parser: JSONParser) {
        guard let error = (try? parser.parse(bytes))?["error"], error.isObject else {
            detail = AnswerDetail.clean(bytes)
            return
        }
        message = error["message"]?.string ?? ""
        status = error["status"]?.string
        detail = AnswerDetail.clean(message.isEmpty ? status ?? "" : message)
        error["details"]?.forEachElement { read($0) }
    }

    private mutating func read(_ entry: JSONValue) {
        guard let type = entry["@type"]?.string else { return }
        if type.hasSuffix(".FcmError") {
            code = Self.text(entry, "errorCode", "error_code") ?? code
        } else if type.hasSuffix(".ApnsError") {
            apnsReason = entry["reason"]?.string.flatMap { Reason(gatewayCode: $0) } ?? apnsReason
            if let told = entry["reason"]?.string {
                detail = AnswerDetail.clean("\(detail) (APNs: \(told))")
            }
        } else if type.hasSuffix(".BadRequest") {
            let violations = entry["fieldViolations"] ?? entry["field_violations"]
            violations?.forEachElement { violation in
                guard let field = violation["field"]?.string else { return }
                namesField = true
                if field == "message.token" || field == "message.fid" { namesAddress = true }
            }
        } else if type.hasSuffix(".QuotaFailure") {
            entry["violations"]?.forEachElement { violation in
                let subject = violation["subject"]?.string ?? ""
                if subject.hasPrefix("device") || subject.hasPrefix("token") {
                    isDeviceQuota = true
                }
                if subject.hasPrefix("project") { isProjectQuota = true }
            }
        } else if type.hasSuffix(".RetryInfo") {
            retryDelay = Self.text(entry, "retryDelay", "retry_delay").flatMap(Self.duration)
        }
    }

    private static func text(
        _ entry: JSONValue, _ camelCase: StaticString, _ snakeCase: StaticString
    ) -> String? {
        (entry[camelCase] ?? entry[snakeCase])?.string
    }

    /// A duration such as `37s` or `1.5s`, rounded up to whole seconds.
    private static func duration(_ text: String) -> TimeSpan? {
        guard text.utf8.count <= 20, text.hasSuffix("s") else { return nil }
        let parts = text.dropLast().split(separator: ".", omittingEmptySubsequences: false)
        guard let whole = parts.first.flatMap({ Int64($0) }), (0...86_400).contains(whole),
            parts.count <= 2
        else { return nil }
        let hasFraction = parts.count == 2 && parts[1].contains { $0 != "0" }
        return .seconds(whole + (hasFraction ? 1 : 0))
    }
}
