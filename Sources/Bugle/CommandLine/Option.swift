// Options as data: parsing, help and the advice for a misspelt one all come from one list.

/// One option of a command, in its long form.
internal struct Option {
    /// The name without dashes.
    let name: String
    /// What stands for the argument in the help; nil for an option without one.
    let argument: String?
    /// One line of help.
    let help: String

    static func flag(_ name: String, _ help: String) -> Option {
        Option(name: name, argument: nil, help: help)
    }

    static func value(_ name: String, _ argument: String, _ help: String) -> Option {
        Option(name: name, argument: argument, help: help)
    }

    static let config = value("config", "FILE", "the configuration, YAML; default $BUGLE_CONFIG")
    static let json = flag("json", "write for machines: JSON instead of text")
    static let help = flag("help", "show this help")
}

/// What stood on the command line behind the command's name.
internal struct Arguments {
    let values: [String: String]
    /// What is neither an option nor an option's argument, in order.
    let positional: [String]

    init(values: [String: String], positional: [String]) {
        self.values = values
        self.positional = positional
    }

    /// Whether an option was given.
    func has(_ name: String) -> Bool { values[name] != nil }

    /// An option's argument; the last one counts.
    func text(_ name: String) -> String? { values[name] }

    /// The argument of an option that the command cannot do without.
    func required(_ name: String, _ argument: String) throws(Failure) -> String {
        if let text = values[name] { return text }
        throw .usage("--\(name) is missing; say --\(name) \(argument)")
    }

    /// A whole number in a range.
    func integer(_ name: String, in range: ClosedRange<Int>) throws(Failure) -> Int? {
        guard let text = values[name] else { return nil }
        if let number = Int(text), range.contains(number) { return number }
        throw .usage(
            "--\(name) \(text): expected a whole number from \(range.lowerBound) to "
                + "\(range.upperBound)")
    }

    /// Refuses more or fewer words than the command takes; `names` says what they mean.
    func positional(_ names: String...) throws(Failure) -> [String] {
        if positional.count < names.count {
            throw .usage("\(names[positional.count]) is missing")
        }
        if positional.count > names.count {
            throw .usage("\(positional[names.count]): nothing more is expected here")
        }
        return positional
    }
}
