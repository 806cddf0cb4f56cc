// What `bugle keys` says: facts with names, as lines for a person or as JSON. No private key is
// among them.

internal import Base
internal import JSON

internal struct KeyReport {
    /// A fact: its name in JSON, and for people.
    private var facts: [(name: String, value: String)] = []
    /// The public keys of a device, as JSON.
    var publicKeys: String?
    /// What to do next, or what is doubtful; not part of the JSON.
    private var notes: [String] = []
    /// What is doubtful.
    private var warnings: [String] = []

    mutating func add(_ name: String, _ value: String?) {
        if let value { facts.append((name, value)) }
    }

    mutating func note(_ line: String) { notes.append(line) }

    mutating func warn(_ line: String?) {
        if let line { warnings.append(line) }
    }

    func print(asJSON: Bool) {
        guard asJSON else {
            let width = (facts.map(\.name.count).max() ?? 0) + 2
            for fact in facts {
                let name = String(fact.name.map { $0 == "_" ? " " : $0 }) + ":"
                Terminal.print("\(name.padded(to: width)) \(fact.value.printable)")
            }
            if let publicKeys { Terminal.print("public_keys: \(publicKeys)") }
            for line in warnings { Terminal.note("warning: \(line)") }
            for line in notes { Terminal.note(line) }
            return
        }
        let bytes = ByteWriter()
        bytes.append(0x7B)
        for (index, fact) in facts.enumerated() {
            if index > 0 { bytes.append(0x2C) }
            bytes.append(jsonString: fact.name)
            bytes.append(0x3A)
            bytes.append(jsonString: fact.value)
        }
        if let publicKeys {
            bytes.append(",\"public_keys\":")
            bytes.append(publicKeys)
        }
        bytes.append(",\"warnings\":[")
        for (index, line) in warnings.enumerated() {
            if index > 0 { bytes.append(0x2C) }
            bytes.append(jsonString: line)
        }
        bytes.append("]}")
        Terminal.print(bytes.text)
    }
}
