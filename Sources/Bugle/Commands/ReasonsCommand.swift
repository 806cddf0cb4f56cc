internal import Base
internal import Config
internal import Gateways
internal import JSON

/// `bugle reasons`: what an outcome's reason means.
internal enum ReasonsCommand: Command {
    static let name = "reasons"
    static let summary = "says why a push ended as it did: all reasons, or one of them"
    static let synopsis = "reasons [REASON] [--json]"
    static let options: [Option] = [.json]
    static let details = """
        Without a word, the page topics/reasons.md: each gateway's answers, what follows from them,
        and what every reason means. With REASON, as it stands in a result, that one alone.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        guard arguments.positional.count <= 1 else {
            throw .usage("\(arguments.positional[1]): one reason at a time")
        }
        let named = try arguments.positional.first.map { word throws(Failure) in
            try reason(named: word)
        }
        if arguments.has("json") {
            Terminal.print(json(named.map { [$0] } ?? Reason.allCases))
            return .ok
        }
        guard let named else {
            // The page ends with a line feed of its own.
            Terminal.print(String(ReasonsPage.text.dropLast()))
            return .ok
        }
        Terminal.print("\(named.rawValue): \(named.meaning)")
        for (gateway, sample) in samples(with: named) {
            let when = sample.circumstance.isEmpty ? "" : ", \(sample.circumstance)"
            Terminal.print(
                "  \(gateway.rawValue): \(sample.answer)\(when): "
                    + ReasonsPage.course(of: sample.verdict))
        }
        return .ok
    }

    private static func reason(named word: String) throws(Failure) -> Reason {
        if let reason = Reason(rawValue: word) { return reason }
        let nearest = NearestName.find(word, among: Reason.allCases.map(\.rawValue))
        throw .failed(
            "\(word): there is no such reason" + (nearest.map { "; did you mean \($0)?" } ?? ""))
    }

    private static func samples(with reason: Reason) -> [(Gateway, VerdictSample)] {
        Gateway.allCases.flatMap { gateway in
            VerdictSamples.of(gateway).filter { $0.verdict.reason == reason }
                .map { (gateway, $0) }
        }
    }

    private static func json(_ reasons: [Reason]) -> String {
        let bytes = ByteWriter()
        bytes.append("[")
        for (index, reason) in reasons.enumerated() {
            if index > 0 { bytes.append(",") }
            var object = JSONObjectWriter(bytes)
            object.string("reason", reason.rawValue)
            object.string("meaning", reason.meaning)
            object.name("answers")
            bytes.append("[")
            for (place, (gateway, sample)) in samples(with: reason).enumerated() {
                if place > 0 { bytes.append(",") }
                var answer = JSONObjectWriter(bytes)
                answer.string("gateway", gateway.rawValue)
                answer.string("answer", sample.answer)
                answer.string("when", sample.circumstance)
                answer.string("course", ReasonsPage.course(of: sample.verdict))
                answer.end()
            }
            bytes.append("]")
            object.end()
        }
        bytes.append("]")
        return bytes.text
    }
}
