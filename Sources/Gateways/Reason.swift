/// Why a target's outcome is what it is: a closed list.
///
/// A gateway's own code keeps the gateway's spelling; codes of our own are in snake case. What no
/// row knows is `other`, and the raw text stands in the detail.
public enum Reason: String, Sendable, CaseIterable {
    // APNs.
    case badCollapseID = "BadCollapseId"
    case badDeviceToken = "BadDeviceToken"
    case badExpirationDate = "BadExpirationDate"
    case badMessageID = "BadMessageId"
    case badPriority = "BadPriority"
    case badTopic = "BadTopic"
    case deviceTokenNotForTopic = "DeviceTokenNotForTopic"
    case duplicateHeaders = "DuplicateHeaders"
    case idleTimeout = "IdleTimeout"
    case invalidPushType = "InvalidPushType"
    case missingDeviceToken = "MissingDeviceToken"
    case missingTopic = "MissingTopic"
    case payloadEmpty = "PayloadEmpty"
    case topicDisallowed = "TopicDisallowed"
    case badCertificate = "BadCertificate"
    case badCertificateEnvironment = "BadCertificateEnvironment"
    case expiredProviderToken = "ExpiredProviderToken"
    case forbidden = "Forbidden"
    case invalidProviderToken = "InvalidProviderToken"
    case missingProviderToken = "MissingProviderToken"
    case unrelatedKeyIDInToken = "UnrelatedKeyIdInToken"
    case badEnvironmentKeyIDInToken = "BadEnvironmentKeyIdInToken"
    case badEnvironmentKeyInToken = "BadEnvironmentKeyInToken"
    case badPath = "BadPath"
    case methodNotAllowed = "MethodNotAllowed"
    case expiredToken = "ExpiredToken"
    case unregistered = "Unregistered"
    case payloadTooLarge = "PayloadTooLarge"
    case tooManyProviderTokenUpdates = "TooManyProviderTokenUpdates"
    case tooManyRequests = "TooManyRequests"
    case internalServerError = "InternalServerError"
    case serviceUnavailable = "ServiceUnavailable"
    case shutdown = "Shutdown"

    // FCM, and the status names of Google's interfaces that stand in for a missing FCM code.
    case fcmUnspecifiedError = "UNSPECIFIED_ERROR"
    case fcmInvalidArgument = "INVALID_ARGUMENT"
    case fcmUnregistered = "UNREGISTERED"
    case fcmSenderIDMismatch = "SENDER_ID_MISMATCH"
    case fcmQuotaExceeded = "QUOTA_EXCEEDED"
    case fcmUnavailable = "UNAVAILABLE"
    case fcmInternal = "INTERNAL"
    case fcmThirdPartyAuthError = "THIRD_PARTY_AUTH_ERROR"
    case googleUnauthenticated = "UNAUTHENTICATED"
    case googlePermissionDenied = "PERMISSION_DENIED"
    case googleNotFound = "NOT_FOUND"
    case googleResourceExhausted = "RESOURCE_EXHAUSTED"
    case googleFailedPrecondition = "FAILED_PRECONDITION"
    case googleDeadlineExceeded = "DEADLINE_EXCEEDED"
    case googleAborted = "ABORTED"
    case googleUnknown = "UNKNOWN"

    // The token endpoint of Google (RFC 6749, section 5.2, and Google's additions).
    case oauthInvalidGrant = "invalid_grant"
    case oauthInvalidScope = "invalid_scope"
    case oauthInvalidRequest = "invalid_request"
    case oauthInvalidClient = "invalid_client"
    case oauthUnauthorizedClient = "unauthorized_client"
    case oauthDisabledClient = "disabled_client"
    case oauthDeletedClient = "deleted_client"

    // Web push: Apple's codes, and words of ours for services that have none.
    case badTTL = "BadTtl"
    case badUrgency = "BadUrgency"
    case badWebPushTopic = "BadWebPushTopic"
    case badWebPushRequest = "BadWebPushRequest"
    case badAuthorizationHeader = "BadAuthorizationHeader"
    case badJWTToken = "BadJwtToken"
    case badVAPIDPublicKey = "BadVapidPublicKey"
    case vapidPkHashMismatch = "VapidPkHashMismatch"
    case vapidKeyMismatch = "vapid_key_mismatch"
    case vapidRefused = "vapid_refused"
    case subscriptionGone = "subscription_gone"
    case subscriptionForeign = "subscription_foreign"
    case endpointForeign = "endpoint_foreign"
    case redirected = "redirected"
    case ttlRefused = "ttl_refused"
    case topicRefused = "topic_refused"
    case requestRefused = "request_refused"
    case throttled = "throttled"
    case serverError = "server_error"

    // Expo: of tickets and receipts, and of whole requests.
    case expoDeviceNotRegistered = "DeviceNotRegistered"
    case expoMessageTooBig = "MessageTooBig"
    case expoMessageRateExceeded = "MessageRateExceeded"
    case expoMismatchSenderID = "MismatchSenderId"
    case expoInvalidCredentials = "InvalidCredentials"
    case expoDeveloperError = "DeveloperError"
    case expoError = "ExpoError"
    case expoProviderError = "ProviderError"
    case expoTooManyRequests = "TOO_MANY_REQUESTS"
    case expoTooManyExperienceIDs = "PUSH_TOO_MANY_EXPERIENCE_IDS"
    case expoTooManyNotifications = "PUSH_TOO_MANY_NOTIFICATIONS"
    case expoTooManyReceipts = "PUSH_TOO_MANY_RECEIPTS"
    case expoValidationError = "VALIDATION_ERROR"
    case expoUnauthorized = "UNAUTHORIZED"

    // Found here, before a request.
    case malformedKeys = "malformed_keys"
    case endpointForbidden = "endpoint_forbidden"
    case vapidKeyUnknown = "vapid_key_unknown"
    case encryptionFailed = "encryption_failed"
    case localPayloadTooLarge = "payload_too_large"
    case malformedToken = "malformed_token"
    case malformedTopic = "malformed_topic"
    case invalidContent = "invalid_content"
    case expired = "expired"
    case credentialUnavailable = "credential_unavailable"
    case permissionDenied = "permission_denied"
    case superseded = "superseded"
    case optedOut = "opted_out"
    case channelMuted = "channel_muted"
    case webRequiresVisible = "web_requires_visible"
    case quarantined = "quarantined"
    case gatewayNotConfigured = "gateway_not_configured"
    case gatewayUnavailable = "gateway_unavailable"
    case noRoom = "no_room"

    // What the connection did instead of an answer.
    case connectionFailed = "connection_failed"
    case connectionLost = "connection_lost"
    case streamRefused = "stream_refused"
    case answerTimeout = "answer_timeout"

    case other

    /// The code a gateway sent, when the list has it; never one of our own codes.
    public init?(gatewayCode code: String) {
        guard let first = code.utf8.first, (0x41...0x5A).contains(first) else { return nil }
        self.init(rawValue: code)
    }
}
