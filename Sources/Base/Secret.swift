/// A value that must not be printed: its descriptions and its mirror are three stars, so that no
/// log line, error or debugger dump shows it by accident.
public struct Secret<Value: Sendable>: Sendable, CustomStringConvertible,
    CustomDebugStringConvertible, CustomReflectable
{
    /// The value itself, for the one place that uses it.
    public let exposed: Value

    /// Hides a value.
    public init(_ value: Value) { exposed = value }

    /// Three stars.
    public var description: String { "***" }

    /// Three stars.
    public var debugDescription: String { "***" }

    /// A mirror without children.
    public var customMirror: Mirror { Mirror(self, children: EmptyCollection()) }
}

extension Secret: Equatable where Value: Equatable {}
