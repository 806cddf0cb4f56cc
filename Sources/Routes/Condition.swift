// The conditions of `when:`. All of them have to hold.

internal import Base
internal import JSON

/// A test of one field.
internal struct Condition: Sendable {
    /// A value to compare with.
    enum Operand: Sendable, Hashable {
        case text(String)
        case number(Decimal)
        case bool(Bool)
    }

    enum Test: Sendable {
        case isOneOf([Operand])
        case isNoneOf([Operand])
        case exists(Bool)
        case above(Decimal)
        case atLeast(Decimal)
        case below(Decimal)
        case atMost(Decimal)
    }

    let path: FieldPath
    let test: Test

    /// Whether the event passes. A missing field passes only tests for its absence.
    func holds(for event: borrowing RouteEvent) -> Bool {
        let value = path.value(in: event)
        if case .missing = value {
            switch test {
            case .exists(let wanted): return !wanted
            case .isNoneOf: return true
            default: return false
            }
        }
        switch test {
        case .exists(let wanted): return wanted
        case .isOneOf(let operands): return operands.contains { $0.equals(value) }
        case .isNoneOf(let operands): return !operands.contains { $0.equals(value) }
        case .above(let bound): return Decimal(value).map { bound < $0 } ?? false
        case .atLeast(let bound): return Decimal(value).map { bound <= $0 } ?? false
        case .below(let bound): return Decimal(value).map { $0 < bound } ?? false
        case .atMost(let bound): return Decimal(value).map { $0 <= bound } ?? false
        }
    }
}

/// A number for comparisons: exact where it is a whole number of 64 bits.
internal struct Decimal: Sendable, Hashable, Comparable {
    private let whole: Int64?
    private let double: Double

    init?(_ text: String) {
        guard let double = Double(text), double.isFinite else { return nil }
        whole = Int64(text)
        self.double = double
    }

    init?(_ value: FieldValue) {
        switch value {
        case .integer(let number):
            whole = number
            double = Double(number)
        case .json(let value):
            guard let number = value.double else { return nil }
            whole = value.int64
            double = number
        default: return nil
        }
    }

    static func == (left: Decimal, right: Decimal) -> Bool {
        if let left = left.whole, let right = right.whole { return left == right }
        return left.double == right.double
    }

    static func < (left: Decimal, right: Decimal) -> Bool {
        if let left = left.whole, let right = right.whole { return left < right }
        return left.double < right.double
    }

    func hash(into hasher: inout Hasher) { hasher.combine(double) }
}

extension Condition.Operand {
    /// Whether a field has this value. A text equals only a text, a number only a number.
    fileprivate func equals(_ value: FieldValue) -> Bool {
        switch self {
        case .number(let number): return Decimal(value) == number
        case .bool(let wanted):
            guard case .json(let value) = value else { return false }
            return value.bool == wanted
        case .text(let wanted):
            switch value {
            case .text(let text): return text == wanted
            case .json(let value): return value.string == wanted
            default: return false
            }
        }
    }
}
