// What would become of an event that nobody has published yet, as far as files can tell.

internal import Base
internal import Config
internal import JSON
internal import Pipeline
internal import Routes

/// Why an event would reach nobody.
internal struct EventFault: Error, Equatable {
    /// The dead letter's code, or the reason of every result.
    let code: String
    /// One line that names the field.
    let reason: String
    /// `:line:column` of what is not JSON.
    var place = ""
}

/// An event, judged: it is one, its content fits, and under a configuration a route or its own
/// words make content.
internal struct EventJudgement {
    let summary: EventCheck.Summary
    /// Its route; nil when the event brings its own content, and when no configuration was asked.
    let route: String?
    /// When its time is over, the route's word counted.
    let expiresAt: UnixMillis
    /// What is odd about it nevertheless.
    let warnings: [String]

    /// Judges a file alone: routes and apps are not known.
    init(_ file: EventFile, at now: UnixMillis) throws(EventFault) {
        summary = try file.examine(at: now)
        route = nil
        expiresAt = summary.expiresAt
        let content = try EventFault.passed { () throws(EventCheck.Refusal) in
            try EventCheck.content(of: file.bytes, isRouted: false, at: now)
        }
        var warnings = EventLint.warnings(file.bytes)
        if let fault = content.fault {
            // Where a route makes the content the payload's own words do not count.
            guard content.isFromPayload else { throw .invalidContent(fault) }
            warnings.append("without a route it is refused: in its payload \(fault)")
        }
        self.warnings = warnings
    }

    /// Judges a file under a configuration and its routes.
    init(
        _ file: EventFile, _ configuration: Configuration, _ routes: RouteTable,
        of eventClass: EventClass, at now: UnixMillis
    ) throws(EventFault) {
        let limit = configuration.limits.eventBytes
        let isSubjectUser = configuration.cloudEvents.userFromSubject
        summary = try file.examine(limit, takesUserFromSubject: isSubjectUser, at: now)
        let explainer = EventExplainer(configuration, routes, projects: [:])
        let explanation = try EventFault.passed { () throws(EventCheck.Refusal) in
            try explainer.explain(file.bytes, of: eventClass, to: [], at: now)
        }
        let isRouted = explanation.route != nil
        let content = try EventFault.passed { () throws(EventCheck.Refusal) in
            try EventCheck.content(
                of: file.bytes, isRouted: isRouted, maximumBytes: limit,
                takesUserFromSubject: isSubjectUser, at: now)
        }
        if let fault = content.fault { throw .invalidContent(fault) }
        // What the gateway fans out is one target, which is known already.
        if case .rejected(let reason, let detail) = explanation.targets.first?.answer {
            throw EventFault(code: reason, reason: detail)
        }
        route = explanation.route
        expiresAt = explanation.expiresAt
        warnings = EventLint.warnings(file.bytes)
    }

    /// Judges a file; without routes as far as it goes alone.
    static func of(
        _ file: EventFile, _ configured: (Configuration, RouteTable)?, _ eventClass: EventClass?,
        at now: UnixMillis
    ) throws(EventFault) -> EventJudgement {
        guard let (configuration, routes) = configured else {
            return try EventJudgement(file, at: now)
        }
        return try EventJudgement(
            file, configuration, routes,
            of: eventClass ?? configuration.kafka.topics.events[0].eventClass, at: now)
    }
}

extension EventFault {
    fileprivate static func invalidContent(_ fault: String) -> EventFault {
        EventFault(code: "invalid_content", reason: fault)
    }

    /// What `body` gives, or what its refusal says.
    static func passed<Value>(
        _ body: () throws(EventCheck.Refusal) -> Value
    ) throws(EventFault) -> Value {
        do throws(EventCheck.Refusal) {
            return try body()
        } catch {
            throw EventFault(code: error.code.rawValue, reason: error.reason)
        }
    }

    /// The same as a command's end.
    func failure(_ file: EventFile) -> Failure {
        .failed("\(file.name)\(place): \(code): \(reason)")
    }
}
