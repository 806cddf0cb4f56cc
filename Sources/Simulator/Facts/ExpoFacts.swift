/// What becomes of messages to an Expo token.
public struct ExpoTokenFate: Sendable, Hashable {
    /// The error in tickets, such as `DeviceNotRegistered`; empty for a good ticket.
    public var ticket: String
    /// The error in receipts; empty for a good one.
    public var receipt: String
    /// How often a receipt is asked for in vain first.
    public var asksBeforeReceipt: Int

    /// A fate; without errors the token takes messages.
    public init(ticket: String = "", receipt: String = "", asksBeforeReceipt: Int = 0) {
        self.ticket = ticket
        self.receipt = receipt
        self.asksBeforeReceipt = asksBeforeReceipt
    }

    /// Of a token that nobody registered its own text tells: `ExponentPushToken[NAME-...]` with an
    /// error's name fails with that error, `[receipt-NAME-...]` in the receipt,
    /// `[late-...]` has a receipt when it is asked for the second time.
    init(token: String) {
        self.init()
        let inner = token.split(separator: "[").last ?? ""
        let words = inner.split(separator: "-")
        guard let first = words.first else { return }
        if Self.errors.contains(String(first)) {
            ticket = String(first)
        } else if first == "receipt", words.count > 1, Self.errors.contains(String(words[1])) {
            receipt = String(words[1])
        } else if first == "late" {
            asksBeforeReceipt = 1
        }
    }

    private static let errors: Set<String> = [
        "DeviceNotRegistered", "MessageTooBig", "MessageRateExceeded", "MismatchSenderId",
        "InvalidCredentials", "ExpoError", "ProviderError", "DeveloperError",
    ]
}

/// Everything Expo knows.
struct ExpoFacts: Sendable {
    /// The access token that is asked for; nil for none.
    var accessToken: String?
    var fates: [String: ExpoTokenFate] = [:]
    /// Projects of tokens that were registered.
    var projects: [String: String] = [:]

    /// The project of any other token: `ExponentPushToken[project-NAME-...]` belongs to `@NAME/app`,
    /// the rest to one project.
    static func project(namedBy token: String) -> String {
        let words = (token.split(separator: "[").last ?? "").split(separator: "-")
        return words.count > 2 && words[0] == "project" ? "@\(words[1])/app" : "@demo/app"
    }
}
