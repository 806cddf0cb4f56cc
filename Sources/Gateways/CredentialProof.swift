// Proofs of credentials: for each gateway a request that cannot reach a device, and what its answer
// says about the credential that it carried. Pure: requests are written, answers are judged.

public import Base
internal import Crypto
internal import JSON

/// What an answer says about the credential of its request.
public enum CredentialVerdict: Sendable, Equatable {
    /// The gateway takes it.
    case proven
    /// The gateway refuses it; whom it blames, and what happened and what to do.
    case refused(Fault, String)
    /// Nothing is known: the gateway did not answer, or about something else.
    case unclear(String)
}

/// Requests that try a credential, and what their answers mean.
public enum CredentialProof {
    // MARK: APNs

    /// Not a device token by any reading: APNs looks at the credential first, and then refuses it.
    private static let impossibleToken: StaticString = "/3/device/0"

    /// Writes a push to a token that cannot exist; without a provider token where the connection
    /// shows a certificate.
    public static func writeAPNs(
        topic: String, authority: String, token: ProviderToken?, into request: OutboundRequest
    ) {
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(":authority", authority)
        request.add(":path", impossibleToken)
        if let token { request.add("authorization", .neverIndexed) { $0.append(token.header) } }
        request.add("apns-topic", topic)
        request.add("apns-push-type", "background")
        request.add("apns-priority", "5")
        request.add("apns-expiration", "0")
        request.body.append("{\"aps\":{\"content-available\":1}}")
    }

    /// Judges APNs' answer to such a push.
    public static func judgeAPNs(_ answer: GatewayAnswer, topic: String) -> CredentialVerdict {
        let parser = JSONParser(maximumBytes: GatewayLimits.answerBytes)
        let body = try? parser.parse(answer.body)
        let reason = AnswerDetail.clean(body?["reason"]?.string ?? "")
        switch (answer.status, reason) {
        case (200, _), (400, "BadDeviceToken"), (400, "MissingDeviceToken"),
            (400, "DeviceTokenNotForTopic"), (410, _):
            return .proven
        case (400, "TopicDisallowed"), (400, "BadTopic"), (403, "TopicMismatch"):
            return .refused(
                .config,
                "APNs knows the credential, but it may not send to the topic \(topic) (\(reason))")
        case (403, "InvalidProviderToken"):
            return .refused(
                .credential,
                "APNs refuses the token that was signed with it (\(reason)): team_id, key_id and key "
                    + "do not belong together, or the key was revoked")
        case (403, "ExpiredProviderToken"):
            return .refused(
                .clock,
                "APNs refuses the time in the token (\(reason)): set this machine's clock by NTP")
        case (403, "BadEnvironmentKeyIdInToken"), (403, "BadEnvironmentKeyInToken"):
            return .refused(.config, "the key is one of the other environment (\(reason))")
        case (403, "BadCertificateEnvironment"):
            return .refused(.config, "the certificate is one of the other environment (\(reason))")
        case (403, _):
            return .refused(.credential, "APNs refuses it (\(named(reason, answer)))")
        case (429, _), (500..., _):
            return .unclear("APNs answered \(answer.status) (\(named(reason, answer)))")
        default:
            return .unclear(
                "APNs answered \(answer.status) (\(named(reason, answer))), which says nothing "
                    + "about it")
        }
    }

    private static func named(_ reason: String, _ answer: GatewayAnswer) -> String {
        reason.isEmpty ? "no reason given" : reason
    }

    // MARK: FCM

    /// Writes a message that is checked and not sent (`validate_only`), to a topic that nobody
    /// subscribes.
    public static func writeFCM(
        projectID: String, authority: String, token: AccessToken, into request: OutboundRequest
    ) {
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(":authority", authority)
        request.add(":path", "/v1/projects/\(projectID)/messages:send")
        request.add("authorization", .neverIndexed) { $0.append(token.header) }
        request.add("content-type", "application/json")
        request.body.append(
            "{\"validate_only\":true,\"message\":{\"topic\":\"bugle-check\",\"data\":{\"check\":\"1\"}}}"
        )
    }

    /// Judges FCM's answer to such a message.
    public static func judgeFCM(
        _ answer: GatewayAnswer, projectID: String, account: String
    ) -> CredentialVerdict {
        let parser = JSONParser(maximumBytes: GatewayLimits.answerBytes)
        let error = FCMError(answer.body, parser)
        let said = error.detail.isEmpty ? "" : " (\(error.detail))"
        switch answer.status {
        case 200: return .proven
        // Whatever is wrong with the message, it was looked at.
        case 400: return .proven
        case 401 where error.code == "THIRD_PARTY_AUTH_ERROR": return .proven
        case 401:
            if let skew = answer.clockSkew, abs(skew.nanos) >= GatewayLimits.clockSkewMin.nanos {
                return .refused(
                    .clock, "FCM refuses the access token\(said): set this machine's clock by NTP")
            }
            return .refused(.credential, "FCM refuses the access token\(said)")
        case 403:
            return .refused(
                .config,
                "\(account) may not send for the project \(projectID)\(said): give it the role "
                    + "Firebase Cloud Messaging API Admin there, and enable that API")
        case 404:
            return .refused(
                .config,
                "FCM knows no project \(projectID)\(said): look at project_id and the endpoint")
        default: return .unclear("FCM answered \(answer.status)\(said)")
        }
    }

    // MARK: Expo

    /// Writes a question for the receipt of no message.
    public static func writeExpo(
        _ credential: ExpoCredential, authority: String, into request: OutboundRequest
    ) {
        ExpoRenderer(credential, authority: authority).writeHead(
            path: ExpoRenderer.receiptsPath, isCompressed: false, into: request)
        ExpoRenderer.writeReceiptsBody(
            ["00000000-0000-4000-8000-000000000000"], to: request.body)
    }

    /// Judges Expo's answer to it.
    public static func judgeExpo(_ answer: GatewayAnswer) -> CredentialVerdict {
        switch answer.status {
        case 200...299, 400: .proven
        case 401, 403:
            .refused(
                .credential,
                "Expo refuses the access token: it was revoked, or is one of another account")
        default: .unclear("Expo answered \(answer.status)")
        }
    }

    // MARK: Web push

    /// Tries the keys of VAPID tokens on this machine. A push service takes any key and compares it
    /// with the one that a subscription was made with, so that there is nobody to ask.
    public static func tryVAPID(_ credential: WebPushCredential) -> CredentialVerdict {
        // Reading a key makes and checks a signature, so that one that was read works.
        credential.keyIDs.isEmpty ? .refused(.config, "there is no key") : .proven
    }
}

extension GatewayAnswer {
    /// How far the gateway's clock is ahead of this machine's; nil when it did not tell its time.
    /// Its seconds are whole and the answer took its time: up to two seconds mean nothing.
    public var clockAhead: TimeSpan? { clockSkew }
}
