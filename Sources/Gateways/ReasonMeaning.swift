// Why each reason arises, in a sentence or two: what a person on call wants to know next to the
// table. A reason without words does not compile.

extension Reason {
    /// Why a target ends, or waits, with this reason, and what helps.
    public var meaning: String {
        switch self {
        case .badCollapseID, .badExpirationDate, .badMessageID, .badPriority, .duplicateHeaders,
            .invalidPushType, .missingDeviceToken, .payloadEmpty, .badPath, .methodNotAllowed,
            .payloadTooLarge:
            "Apple found the request malformed. Bugle checks all of this before it sends, so it is a "
                + "fault of Bugle's or of a raw override."
        case .badDeviceToken:
            "The token is not one of this environment: a sandbox token at production, or the other "
                + "way round, or it was damaged. A whole fleet gets this when a build or the "
                + "environment in the registrations is wrong, so the token is not dead: it rests "
                + "until the app registers again, and the fuse counts it."
        case .deviceTokenNotForTopic:
            "The token belongs to another bundle id than the topic. A wrong topic in the "
                + "configuration gives this for every token, so none of them is thrown away."
        case .badTopic, .missingTopic, .topicDisallowed:
            "The topic is not one that the key or certificate may send for: look at apps.NAME.apns "
                + "and at the team that the key belongs to."
        case .badCertificate, .badCertificateEnvironment:
            "The client certificate is of another environment, expired or revoked."
        case .expiredProviderToken:
            "The provider token is older than an hour for Apple. If it is young, this machine's clock "
                + "is wrong."
        case .forbidden: "Apple refuses the account altogether: look at its agreements."
        case .invalidProviderToken:
            "Team id, key id and key do not belong together, or the key was revoked."
        case .missingProviderToken: "No provider token came with the request."
        case .unrelatedKeyIDInToken:
            "A connection saw two teams' keys. Apple takes one team per connection; another "
                + "connection is tried once."
        case .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            "The key was made for the other environment only."
        case .idleTimeout: "The service closed an idle connection; the push goes over another one."
        case .expiredToken, .unregistered:
            "Apple says that the token is dead: the app was removed, or notifications were turned "
                + "off for good. It counts only if the token was not registered again afterwards, "
                + "by Apple's own time of death where it tells one."
        case .tooManyProviderTokenUpdates:
            "Provider tokens were made too often; the present one is kept."
        case .tooManyRequests:
            "This device got too many pushes. Only its own pushes wait."
        case .internalServerError, .serviceUnavailable:
            "The gateway has a fault of its own; Apple wants fifteen minutes between attempts."
        case .shutdown: "The server is going down; the push goes to another one."

        case .fcmUnspecifiedError, .googleUnknown: "Google gave no reason."
        case .fcmInvalidArgument:
            "Google found the request malformed. Only when it names the token, by field or by its "
                + "sentence, the token is meant; everything else is the payload, and the token stays."
        case .fcmUnregistered:
            "Google says that the token is dead: the app was removed or its data cleared. A 404 "
                + "without this code says nothing about the token."
        case .fcmSenderIDMismatch:
            "The token belongs to another Firebase project. A wrong service account gives this for "
                + "every token, so none of them is thrown away."
        case .fcmQuotaExceeded, .googleResourceExhausted:
            "Too many messages: of the project, which waits as a whole, or of one device."
        case .fcmUnavailable, .fcmInternal, .googleDeadlineExceeded, .googleAborted:
            "The gateway has a fault of its own; it is asked again after ten seconds or more."
        case .fcmThirdPartyAuthError:
            "Firebase's own key for APNs, or for web push, is missing or refused: look at the "
                + "project's Cloud Messaging settings. Our service account is fine."
        case .googleUnauthenticated:
            "Google does not take the access token; a new one is tried once."
        case .googlePermissionDenied:
            "The service account may not send for the project, or its interface is not enabled."
        case .googleNotFound:
            "Google found no such thing, and did not say that it was the token: most likely the "
                + "project's id is wrong."
        case .googleFailedPrecondition: "Google cannot do this in the project's present state."
        case .oauthInvalidGrant:
            "Google refused the assertion: the key is revoked, its account deleted, or the clock "
                + "wrong. The detail says which."
        case .oauthInvalidScope, .oauthInvalidRequest:
            "Google refused the form of the request for a token."
        case .oauthInvalidClient, .oauthUnauthorizedClient, .oauthDisabledClient,
            .oauthDeletedClient:
            "Google refused the service account: look whether it is disabled or deleted."

        case .badTTL, .badUrgency, .badWebPushTopic, .badWebPushRequest, .ttlRefused,
            .topicRefused, .requestRefused:
            "The push service found the request malformed; the subscription stays."
        case .badAuthorizationHeader, .badJWTToken, .badVAPIDPublicKey, .vapidRefused:
            "The push service refused the VAPID token: its subject, its key or its time. It says "
                + "nothing about the subscription."
        case .vapidPkHashMismatch, .vapidKeyMismatch:
            "The subscription was made with another VAPID key. A wrong vapid_key_id or a lost key "
                + "gives this for all of them, so they rest until the browser subscribes again."
        case .subscriptionGone:
            "The push service says that the subscription is over (RFC 8030, section 7.3). A new one "
                + "gets a second chance, since services may not know it everywhere yet."
        case .subscriptionForeign: "The subscription belongs to another sender."
        case .endpointForeign: "What answers at the endpoint is no push service."
        case .redirected:
            "The service answered with a redirect, which is never followed: it could lead anywhere."
        case .throttled: "The push service asks for a pause."
        case .serverError: "The push service has a fault of its own."

        case .expoDeviceNotRegistered:
            "Expo says that the device cannot be reached any more: the app was removed."
        case .expoMessageTooBig: "The message is over 4,096 bytes by Expo's count."
        case .expoMessageRateExceeded: "This device got too many messages. Only its own wait."
        case .expoMismatchSenderID, .expoInvalidCredentials:
            "The credentials that Expo holds for APNs or FCM are wrong: run eas credentials. The "
                + "token stays."
        case .expoDeveloperError: "Expo found the request malformed."
        case .expoError, .expoProviderError:
            "Expo, or the gateway behind it, has a fault of its own."
        case .expoTooManyRequests: "The project sends faster than Expo takes; the project waits."
        case .expoTooManyExperienceIDs:
            "Tokens of several projects were in one request; it is divided by project."
        case .expoTooManyNotifications, .expoTooManyReceipts, .expoValidationError:
            "Expo refused the whole request; it is sent in halves until the message is found."
        case .expoUnauthorized:
            "The access token is missing or refused, and the project asks for one."

        case .malformedKeys:
            "The subscription's keys are no point of P-256 and 16 bytes: no browser made them."
        case .endpointForbidden:
            "The endpoint's host is not on the list of allowed hosts, or not public. The operator's "
                + "word, which may change, so the subscription stays."
        case .vapidKeyUnknown:
            "The registration names a VAPID key that is not configured: put it back."
        case .encryptionFailed: "OpenSSL could not encrypt."
        case .noDeviceKey:
            "The route encrypts, and the device left no key. Nothing is sent in clear instead."
        case .malformedDeviceKey:
            "The route encrypts, and none of the device's keys can be used; the detail says what is "
                + "wrong with the first."
        case .localPayloadTooLarge:
            "The payload is over the gateway's limit, and its body cannot be shortened enough. The "
                + "detail has both sizes."
        case .malformedToken:
            "No token of this gateway looks like that: nobody but a new registration can mend it."
        case .featureNotEnabled, .broadcastFeatureNotEnabled:
            "Broadcast is not switched on for this bundle id in Apple's developer account."
        case .missingChannelID, .badChannelID, .badRequestParams, .badRequestPayload,
            .missingPushType:
            "Apple found the request for the channel malformed. Bugle checks this before it sends: look "
                + "at the channel's id in the event, or it is a fault of Bugle's."
        case .channelNotRegistered:
            "Nobody has made the channel, it was deleted, or it is one of the other environment: bugle "
                + "channels list shows those there are."
        case .cannotCreateChannelConfig:
            "The account has as many channels as Apple allows: delete those that are done with."
        case .topicMismatch:
            "The key or certificate is not for the bundle id that the channel belongs to."
        case .malformedTopic: "The configured APNs topic is no header text."
        case .invalidContent:
            "What the event or the route says does not fit this gateway; the detail names the field."
        case .expired: "The event's time was over before it could be sent."
        case .credentialUnavailable: "There is no token to send with; the detail says why."
        case .permissionDenied: "Notifications are turned off on the device."
        case .superseded:
            "The address belongs to somebody else now, or is gone, since the event was fanned out."
        case .duplicate: "An event with the same source and id was pushed a moment ago."
        case .optedOut: "The person does not want this kind of notification."
        case .channelMuted: "The person muted this Android channel."
        case .webRequiresVisible:
            "A browser must show something for every push, and the route has no fallback text."
        case .quarantined:
            "The fuse tripped and holds verdicts on tokens back, this one's among them: an operator "
                + "releases or discards them."
        case .gatewayNotConfigured: "The app has no section for this gateway."
        case .gatewayUnavailable:
            "The gateway's breaker is open; the event waits in a parking topic."
        case .noRoom: "The gateway's budget is used up; the event waits in a parking topic."

        case .paused:
            "An operator holds pushes like this one back: the event waits in Kafka and expires by its "
                + "own time."
        case .quietHours:
            "The person is not to be disturbed at this time, and the route says not to wait, or the "
                + "event would have expired before the end."
        case .overCap: "The person or the device has had as much of it as the configuration allows."
        case .overQuota: "The event's source has sent as much as the configuration allows it."
        case .skipped: "An operator ended what was too old to be worth sending."

        case .connectionFailed: "No connection could be made."
        case .connectionLost:
            "The connection ended before the answer: the device may have got the push."
        case .streamRefused: "The gateway said that it did not look at the request."
        case .answerTimeout: "No answer came in time: the device may have got the push."
        case .other: "None of the known codes; the detail has the gateway's words."
        }
    }
}
