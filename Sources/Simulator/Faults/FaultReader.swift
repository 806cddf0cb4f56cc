internal import Base
internal import JSON

/// Reads the members of one JSON object of a fault plan, and complains about the rest.
struct FaultReader {
    let value: JSONValue
    let place: String

    init(_ value: JSONValue, at place: String, known: Set<String>) throws(FaultPlanError) {
        self.value = value
        self.place = place
        guard value.isObject else {
            throw FaultPlanError(place: place, problem: "an object is needed")
        }
        try value.forEachMember { (name, _) throws(FaultPlanError) in
            guard known.contains(name.text) else {
                throw FaultPlanError(
                    place: place,
                    problem: "\"\(name.text)\" is not known; known are "
                        + known.sorted().joined(separator: ", "))
            }
        }
    }

    func wrong(_ name: String, _ problem: String) -> FaultPlanError {
        FaultPlanError(place: place.isEmpty ? name : "\(place).\(name)", problem: problem)
    }

    func has(_ name: String) -> Bool { value[name].map { !$0.isNull } ?? false }

    func member(_ name: String) -> JSONValue? { has(name) ? value[name] : nil }

    func text(_ name: String) throws(FaultPlanError) -> String? {
        guard let member = member(name) else { return nil }
        guard let text = member.string else { throw wrong(name, "a string is needed") }
        return text
    }

    func flag(_ name: String, default fallback: Bool) throws(FaultPlanError) -> Bool {
        guard let member = member(name) else { return fallback }
        guard let flag = member.bool else { throw wrong(name, "true or false is needed") }
        return flag
    }

    func integer(
        _ name: String, in range: ClosedRange<Int64>
    ) throws(FaultPlanError) -> Int64? {
        guard let member = member(name) else { return nil }
        guard let number = member.int64, range.contains(number) else {
            throw wrong(
                name,
                "an integer from \(range.lowerBound) to \(range.upperBound) is needed")
        }
        return number
    }

    func count(_ name: String, from lowest: Int64) throws(FaultPlanError) -> Int? {
        try integer(name, in: lowest...1_000_000_000_000).map { Int($0) }
    }

    func unsigned(_ name: String) throws(FaultPlanError) -> UInt32? {
        try integer(name, in: 0...Int64(UInt32.max)).map { UInt32($0) }
    }

    func number(
        _ name: String, in range: ClosedRange<Double>
    ) throws(FaultPlanError) -> Double? {
        guard let member = member(name) else { return nil }
        guard let number = member.double, range.contains(number) else {
            throw wrong(name, "a number from \(range.lowerBound) to \(range.upperBound) is needed")
        }
        return number
    }

    /// Milliseconds, fractions allowed.
    func span(_ name: String) throws(FaultPlanError) -> TimeSpan? {
        try number(name, in: 0...Self.longestMillis).map(Self.span)
    }

    static func span(_ millis: Double) -> TimeSpan { TimeSpan(nanos: Int64(millis * 1_000_000)) }

    static let longestMillis = 86_400_000.0
}
