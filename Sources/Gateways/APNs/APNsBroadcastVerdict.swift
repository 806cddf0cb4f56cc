// The table of APNs for channels: what publishing to one, and what managing them, may answer. A
// channel is no token: nothing here ends a registration.

internal import Base
public import JSON

/// What an answer about a channel means.
public enum APNsBroadcastVerdict {
    /// What follows from a row.
    private enum Ruling {
        /// This push is refused for good.
        case rejected(Fault)
        /// Our credential or set-up is at fault.
        case credential(Fault)
        /// As the table of devices says: the same words with the same meaning.
        case asForDevices
    }

    private static let rows: [(status: Int, reason: Reason, ruling: Ruling)] = [
        (400, .featureNotEnabled, .credential(.config)),
        (400, .broadcastFeatureNotEnabled, .credential(.config)),
        (400, .channelNotRegistered, .rejected(.none)),
        (400, .missingChannelID, .rejected(.ours)),
        (400, .badChannelID, .rejected(.none)),
        (400, .badRequestParams, .rejected(.ours)),
        (400, .badRequestPayload, .rejected(.ours)),
        (400, .missingPushType, .rejected(.ours)),
        (400, .cannotCreateChannelConfig, .rejected(.config)),
        (400, .badExpirationDate, .rejected(.none)),
        (403, .topicMismatch, .credential(.config)),
        (400, .payloadEmpty, .asForDevices),
        (400, .badMessageID, .asForDevices),
        (400, .invalidPushType, .asForDevices),
        (400, .badPriority, .asForDevices),
        (400, .topicDisallowed, .asForDevices),
        (403, .badCertificate, .asForDevices),
        (403, .badCertificateEnvironment, .asForDevices),
        (403, .missingProviderToken, .asForDevices),
        (403, .expiredProviderToken, .asForDevices),
        (403, .invalidProviderToken, .asForDevices),
        (404, .badPath, .asForDevices),
        (405, .methodNotAllowed, .asForDevices),
        (413, .payloadTooLarge, .asForDevices),
        (429, .tooManyRequests, .asForDevices),
        (429, .tooManyProviderTokenUpdates, .asForDevices),
        (500, .internalServerError, .asForDevices),
        (503, .serviceUnavailable, .asForDevices),
        (503, .shutdown, .asForDevices),
    ]

    /// Judges an answer. Pure; `parser` only lends its memory.
    public static func judge(
        _ answer: GatewayAnswer, sent: SentRequest,
        parser: JSONParser = JSONParser(maximumBytes: GatewayLimits.answerBytes)
    ) -> Verdict {
        var verdict = APNsVerdict.judge(answer, sent: sent, parser: parser).aboutNoToken
        guard
            let row = rows.first(where: {
                $0.status == answer.status && $0.reason == verdict.reason
            })
        else { return verdict }
        switch row.ruling {
        case .asForDevices: break
        case .rejected(let fault):
            verdict.course = .final(.rejected)
            verdict.fault = fault
        case .credential(let fault):
            verdict.course = .final(.credentialError)
            verdict.fault = fault
        }
        return verdict
    }
}
