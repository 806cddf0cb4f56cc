/// What is wrong with the text of a fault plan.
public struct FaultPlanError: Error, Hashable, CustomStringConvertible {
    /// Where: a path such as `rules[2].effect.answer`.
    public let place: String
    /// What, and what would be right.
    public let problem: String

    /// The place and the problem in one line.
    public var description: String { place.isEmpty ? problem : "\(place): \(problem)" }
}
