// What goes wrong when an event meets a template: always the event's field, by its path, and never
// its value.

/// Why a route cannot make a notification of an event.
public struct TemplateError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The field, such as `payload.order.total`, or the route's setting, such as `link`.
    public let field: String
    /// What is wrong with it.
    public let problem: String

    internal init(_ field: String, _ problem: String) {
        self.field = field
        self.problem = problem
    }

    /// One line.
    public var description: String { "\(field) \(problem)" }
}

/// A mistake in the text of a template; the reader of the configuration adds the place.
internal struct TemplateSyntaxError: Error, Equatable {
    let message: String

    init(_ message: String) { self.message = message }
}
