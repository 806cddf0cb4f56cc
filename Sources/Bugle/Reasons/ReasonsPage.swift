// The page topics/reasons.md: how each outcome and reason arises at each gateway, out of the
// tables that decide it. A test holds the committed page and this together.

internal import Base
internal import Gateways
internal import Pipeline

internal enum ReasonsPage {
    /// The whole page.
    static var text: String {
        var lines = [
            "# Reasons", "",
            "How each outcome of a push arises at each gateway, and why. Written by `bugle reasons`",
            "out of the tables that decide it: do not edit, run `bugle reasons > topics/reasons.md`.",
            "",
            "- **Outcome**: what stands in `push.results`. `again after` means that the push is tried",
            "  again no earlier than that, at most `dispatch.retry.attempts` times and never past the",
            "  event's expiry; then the outcome is `failed`, unless another one is named. Waits double",
            "  from attempt to attempt, and a gateway's own `retry-after` counts first.",
            "- **Token**: `invalidate` ends the address, `suspend` lets it rest until the app registers",
            "  again; both only for registrations that are not newer than the request. **(fuse)**: a",
            "  misconfiguration could cause this for every token, so that a surge of them trips the",
            "  fuse and nothing is lost.",
            "- **Blames**: whom alarms name. `ours` is a fault of Bugle's, `config` of the set-up,",
            "  `credential` of a key or account, `clock` of this machine's time.",
        ]
        for gateway in Gateway.allCases {
            lines += ["", "## \(Self.names[gateway] ?? gateway.rawValue)", ""]
            lines += table(of: VerdictSamples.of(gateway))
        }
        lines += ["", "## What the reasons mean", "", "| reason | why |", "|---|---|"]
        lines += Reason.allCases.map { "| `\($0.rawValue)` | \($0.meaning) |" }
        lines += [
            "", "## What the codes of dead letters mean", "",
            "The header `bugle-error-code` of a dead letter, and the reason of the result beside it",
            "(`dead_lettered`).", "", "| code | why |", "|---|---|",
        ]
        lines += DeadLetterCode.allCases.map { "| `\($0.rawValue)` | \($0.meaning) |" }
        return lines.joined(separator: "\n") + "\n"
    }

    private static let names: [Gateway: String] = [
        .apns: "APNs", .fcm: "FCM", .webpush: "Web push", .expo: "Expo",
    ]

    private static func table(of samples: [VerdictSample]) -> [String] {
        [
            "| answer | when | outcome | reason | token | blames |", "|---|---|---|---|---|---|",
        ]
            + samples.map { sample in
                let verdict = sample.verdict
                let cells = [
                    sample.answer, sample.circumstance, course(of: verdict),
                    verdict.reason.map { "`\($0.rawValue)`" } ?? "", token(of: verdict),
                    verdict.fault == .none ? "" : "\(verdict.fault)",
                ]
                return "| " + cells.joined(separator: " | ") + " |"
            }
    }

    /// What becomes of the push, in words.
    static func course(of verdict: Verdict) -> String {
        switch verdict.course {
        case .final(let outcome): return "`\(outcome.rawValue)`"
        case .retry(let advice):
            var words =
                advice.minimumWait == .zero
                ? "again at once" : "again after \(span(advice.minimumWait))"
            if advice.needsFreshCredential { words += " with a new credential" }
            if advice.needsNewConnection { words += " on another connection" }
            switch advice.scope {
            case .target: break
            case .token: words += "; all pushes to the token wait"
            case .connection: words += "; all pushes on the connection wait"
            case .project: words += "; all pushes of the project wait"
            case .perhapsProject:
                words += "; all pushes of the project wait when others of it are told the same"
            }
            if advice.exhausted != .failed { words += "; else `\(advice.exhausted.rawValue)`" }
            return words
        }
    }

    private static func span(_ span: TimeSpan) -> String {
        guard span.millis % 1000 == 0 else { return "\(span.millis) ms" }
        let seconds = span.millis / 1000
        return seconds % 60 == 0 ? "\(seconds / 60) min" : "\(seconds) s"
    }

    private static func token(of verdict: Verdict) -> String {
        let action =
            switch verdict.tokenAction {
            case .none: ""
            case .invalidate: "invalidate"
            case .suspend: "suspend"
            }
        return action.isEmpty || !verdict.countsForFuse ? action : "\(action) (fuse)"
    }
}
