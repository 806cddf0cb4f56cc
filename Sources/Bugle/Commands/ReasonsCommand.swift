internal import Base
internal import Config
internal import Gateways
internal import JSON
internal import Pipeline

/// `bugle reasons`: what an outcome's reason means.
internal enum ReasonsCommand: Command {
    static let name = "reasons"
    static let summary = "says why a push ended as it did: all reasons, or one of them"
    static let synopsis = "reasons [REASON] [--json]"
    static let options: [Option] = [.json]
    static let details = """
        Without a word, the page topics/reasons.md: each gateway's answers, what follows from them,
        and what every reason and every code of a dead letter means. With REASON, as it stands in a
        result or in the header bugle-error-code, that one alone.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        guard arguments.positional.count <= 1 else {
            throw .usage("\(arguments.positional[1]): one reason at a time")
        }
        let named = try arguments.positional.first.map { word throws(Failure) in
            try entry(named: word)
        }
        if arguments.has("json") {
            Terminal.print(json(named.map { [$0] } ?? ReasonEntry.all))
            return .ok
        }
        guard let named else {
            // The page ends with a line feed of its own.
            Terminal.print(String(ReasonsPage.text.dropLast()))
            return .ok
        }
        if let reason = named.reason {
            Terminal.print("\(named.name): \(reason.meaning)")
            for (gateway, sample) in samples(with: reason) {
                let when = sample.circumstance.isEmpty ? "" : ", \(sample.circumstance)"
                Terminal.print(
                    "  \(gateway.rawValue): \(sample.answer)\(when): "
                        + ReasonsPage.course(of: sample.verdict))
            }
        }
        if let code = named.code {
            Terminal.print("\(named.name), a dead letter's code: \(code.meaning)")
        }
        return .ok
    }

    private static func entry(named word: String) throws(Failure) -> ReasonEntry {
        if let entry = ReasonEntry.all.first(where: { $0.name == word }) { return entry }
        let nearest = NearestName.find(word, among: ReasonEntry.all.map(\.name))
        throw .failed(
            "\(word): there is no such reason" + (nearest.map { "; did you mean \($0)?" } ?? ""))
    }

    private static func samples(with reason: Reason) -> [(Gateway, VerdictSample)] {
        Gateway.allCases.flatMap { gateway in
            VerdictSamples.of(gateway).filter { $0.verdict.reason == reason }
                .map { (gateway, $0) }
        }
    }

    private static func json(_ entries: [ReasonEntry]) -> String {
        let bytes = ByteWriter()
        bytes.append("[")
        for (index, entry) in entries.enumerated() {
            if index > 0 { bytes.append(",") }
            var object = JSONObjectWriter(bytes)
            object.string("reason", entry.name)
            object.string("meaning", entry.reason?.meaning ?? entry.code?.meaning ?? "")
            if let code = entry.code { object.string("dead_letter", code.meaning) }
            object.list("answers", entry.reason.map(samples) ?? []) { bytes, pair in
                let (gateway, sample) = pair
                var answer = JSONObjectWriter(bytes)
                answer.string("gateway", gateway.rawValue)
                answer.string("answer", sample.answer)
                answer.string("when", sample.circumstance)
                answer.string("course", ReasonsPage.course(of: sample.verdict))
                answer.end()
            }
            object.end()
        }
        bytes.append("]")
        return bytes.text
    }
}

/// What may stand as the reason of a result: a reason of a push, a dead letter's code, or both.
internal struct ReasonEntry {
    let name: String
    var reason: Reason?
    var code: DeadLetterCode?

    /// The reasons, and behind them the codes that are none.
    static let all: [ReasonEntry] =
        Reason.allCases.map {
            ReasonEntry(name: $0.rawValue, reason: $0, code: DeadLetterCode(rawValue: $0.rawValue))
        }
        + DeadLetterCode.allCases.filter { Reason(rawValue: $0.rawValue) == nil }.map {
            ReasonEntry(name: $0.rawValue, code: $0)
        }
}
