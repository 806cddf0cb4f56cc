// A dry run with the code that sends: decode, route, render. Nothing is asked and nothing is sent.

public import Base
public import Config
internal import Gateways
internal import HTTP2
internal import JSON
public import Routes
public import TokenIndex

/// Explains events under a configuration. Confined to one thread.
public final class EventExplainer {
    private let configuration: Configuration
    private let routes: RouteTable
    private let contents = ContentMaker()
    private let scratch = ByteWriter()
    /// The Firebase projects by app.
    private let projects: [String: String]
    /// Whether encrypted content is left out of the bodies for people.
    internal var hidesSealed = true
    /// The body of the last web push as it would leave.
    private var sealedBody: [UInt8]?

    /// An explainer; `projects` are the Firebase projects by app, where they are known.
    public init(_ configuration: Configuration, _ routes: RouteTable, projects: [String: String]) {
        self.configuration = configuration
        self.routes = routes
        self.projects = projects
    }

    /// Says what would become of an event that is published now and whose user has these
    /// addresses and this record, while operators hold `levers`; throws what would stand in the dead
    /// letter. With a count of two or more it is the latest of a burst of so many, and sent for all
    /// of them.
    public func explain(
        _ value: [UInt8], of eventClass: EventClass = .transactional, count: Int64 = 1,
        to addresses: [DeviceAddress], user: UserRecord? = nil, levers: Levers = .none,
        at now: UnixMillis
    ) throws(EventCheck.Refusal) -> Explanation {
        let parser = JSONParser()
        let result = value.withUnsafeBytes { bytes -> Result<Explanation, EventCheck.Refusal> in
            let record = InputRecord(
                position: RecordPosition(topic: "explain", partition: 0, offset: 0),
                timestamp: now, key: nil, value: bytes, headers: [])
            do throws(Refusal) {
                return .success(
                    try explain(record, eventClass, count, addresses, user, levers, now, parser))
            } catch {
                return .failure(EventCheck.Refusal(code: error.code, reason: error.reason))
            }
        }
        return try result.get()
    }

    private func explain(
        _ record: InputRecord, _ eventClass: EventClass, _ count: Int64,
        _ addresses: [DeviceAddress], _ user: UserRecord?, _ levers: Levers, _ now: UnixMillis,
        _ parser: JSONParser
    ) throws(Refusal) -> Explanation {
        let decoder = EventDecoder(
            maximumBytes: configuration.limits.eventBytes,
            takesUserFromSubject: configuration.cloudEvents.userFromSubject)
        let envelope = try decoder.decode(record, with: parser)
        let app = try app(of: envelope)
        let routed = try contents.route(
            envelope, app: app.name, eventClass, in: routes, count: count)
        if routed == nil {
            try envelope.takeContentFromPayload()
            guard envelope.content.isExplicit else {
                throw envelope.refusal(.noRoute, routes.noRoute(for: envelope.type))
            }
            try contents.checkAddresses(of: envelope, app: app.name, in: routes)
        }
        let identity = envelope.identity(app: app.name, scratch: scratch)
        let addresses = envelope.broadcastAddress(app: app.name).map { [$0] } ?? addresses
        let meant = addresses.filter { envelope.addresses($0, routed?.route) }
        let quiet = routed.flatMap {
            QuietTime($0, envelope, user, meant, contents.clocks, at: now)
        }
        let chosen = envelope.targets(
            among: addresses, routed?.route, preferring: configuration.index.gatewayPreference
        ) { app.has($0.gateway) }
        let targets = chosen.map { address in
            Explanation.Target(
                addressID: address.addressID, gateway: address.gateway,
                environment: address.environment, platform: address.platform,
                locale: address.locale(orOf: user), tokenName: address.tokenName,
                answer: answer(to: address, envelope, routed, user, app, identity, now, quiet))
        }
        return Explanation(
            type: envelope.type, userID: envelope.resultUserID, to: envelope.to, app: app.name,
            route: routed?.route.name, choice: choice(routed?.route),
            obstacles: levers.holding(envelope, app: app.name, chosen).map {
                "paused by an operator: \($0): it waits until that is resumed"
            } + [quiet?.description].compactMap(\.self)
                + routes.caps.lines(of: routed, envelope), kind: routed?.kind,
            priority: envelope.priority, collapseKey: envelope.collapseKey,
            folding: envelope.folding(
                routed?.route, deduplicate: configuration.dispatch.deduplicate, at: now,
                scratch: scratch),
            expiresAt: envelope.expiresAt, targets: targets,
            notPreferred: meant.filter { address in
                !chosen.contains { $0 === address }
            }.map { address in
                let other = chosen.first { $0.pushPlace == address.pushPlace }
                return (address.addressID, other?.addressID ?? "")
            },
            passedOver: addresses.map(\.addressID).filter { id in
                !meant.contains { $0.addressID == id }
            })
    }

    private func app(of envelope: EventEnvelope) throws(Refusal) -> Configuration.App {
        let apps = configuration.apps
        if let name = envelope.app, let app = configuration.app(named: name) { return app }
        if envelope.app == nil, apps.count == 1 { return apps[0] }
        let known = apps.map(\.name).joined(separator: ", ")
        throw envelope.refusal(
            .unknownApp,
            envelope.app == nil
                ? "app is missing and several are configured: \(known)"
                : "the app is not configured; known are: \(known)")
    }

    private func choice(_ route: Route?) -> String {
        guard let route else { return "no route matches; the event brings its own content" }
        let pattern = route.name.split(separator: "#")[0]
        let manner = pattern.hasSuffix("*") ? "the longest prefix that fits" : "the exact type"
        return "line \(route.line): \(manner)"
            + (route.hasConditions ? ", and its conditions hold" : "")
    }

    // MARK: One address

    private func answer(
        to address: DeviceAddress, _ envelope: EventEnvelope, _ routed: RoutedEvent?,
        _ user: UserRecord?, _ app: Configuration.App, _ identity: UUIDBytes, _ now: UnixMillis,
        _ quiet: QuietTime?
    ) -> Explanation.Answer {
        if envelope.expiresAt <= now { return .expired }
        if address.isQuarantined { return .suppressed(reason: Reason.quarantined.rawValue) }
        let reason =
            routed?.suppression(of: address, user)
            ?? (routed == nil && address.permission == .denied ? .permissionDenied : nil)
        if let reason { return .suppressed(reason: reason.rawValue) }
        if quiet?.suppresses == true { return .suppressed(reason: Reason.quietHours.rawValue) }
        return answer(to: address, envelope, routed, user, app, without: 0) {
            contents.base(
                of: envelope, routed, user, app: app.name, identity: identity, now: now)
        }
    }

    /// What is sent when the body gives up so many bytes.
    private func answer(
        to address: DeviceAddress, _ envelope: EventEnvelope, _ routed: RoutedEvent?,
        _ user: UserRecord?, _ app: Configuration.App, without excess: Int, base: () -> PushContent
    ) -> Explanation.Answer {
        let content: PushContent
        var secret: ContentVersion?
        do throws(ContentError) {
            if let routed {
                let version = try contents.version(
                    of: routed, for: address, user, without: excess, base: base)
                content = version.content ?? base()
                if routed.route.encrypts { secret = version }
            } else {
                content = try contents.content(of: envelope, base: base())
            }
        } catch {
            return .rejected(
                reason: Reason.invalidContent.rawValue, detail: error.description)
        }
        content.shared = nil
        content.messageID = address.withAddressID {
            EventEnvelope.messageID(of: content.eventIdentity, addressID: $0, scratch: scratch)
        }
        if let secret {
            let answer = contents.seal(secret, as: content, app: app.name, for: address)
            if case .refused(let outcome, let reason, let detail) = answer {
                return outcome == .suppressed
                    ? .suppressed(reason: reason.rawValue)
                    : .rejected(reason: reason.rawValue, detail: detail)
            }
        }
        let request = OutboundRequest()
        sealedBody = nil
        let rendering = address.withToken {
            render(
                content, to: address, $0, routed, envelope.to?.kind, app, into: request)
        }
        guard let rendering else {
            return .rejected(
                reason: Reason.gatewayNotConfigured.rawValue,
                detail: "\(address.gateway.rawValue) \(address.environment.rawValue)")
        }
        switch rendering {
        case .request(let notes):
            return .request(
                masked(
                    request, address, content, isSecret: !envelope.isBroadcast,
                    secret?.secret.text, notes: notes.detail))
        case .malformedToken(let detail):
            return .rejected(reason: Reason.malformedToken.rawValue, detail: detail)
        case .rejected(let reason, let detail):
            return .rejected(reason: reason.rawValue, detail: detail)
        case .tooLarge(let bytes, let limit):
            if excess == 0, routed?.route.shrinksBody == true {
                return answer(
                    to: address, envelope, routed, user, app, without: bytes - limit, base: base)
            }
            return .rejected(
                reason: Reason.localPayloadTooLarge.rawValue,
                detail: ContentMaker.sizes(bytes, limit))
        case .expired: return .expired
        }
    }

    private func render(
        _ content: PushContent, to address: DeviceAddress, _ token: UnsafeRawBufferPointer,
        _ routed: RoutedEvent?, _ broadcast: BroadcastTarget.Kind?, _ app: Configuration.App,
        into request: OutboundRequest
    ) -> Rendering? {
        let target = PushTarget(
            gateway: address.gateway, environment: address.environment, token: token,
            apnsTopic: address.apnsTopic, platform: broadcast == nil ? address.platform : nil,
            registeredAt: address.registeredAt,
            kind: routed == nil ? .alert : AddressKind(rawValue: address.kind) ?? .alert,
            broadcast: broadcast, isInstallation: address.isInstallation(token))
        switch address.gateway {
        case .apns:
            guard let apns = app.apns else { return nil }
            let settings = APNsSettings(
                topic: apns.topic, productionAuthority: Self.authority(apns.production),
                sandboxAuthority: Self.authority(apns.sandbox))
            let authorization: ProviderToken? =
                apns.certificateFile == nil
                ? ProviderToken(
                    header: Array("bearer ***".utf8), generation: 0,
                    mintedAt: MonotonicTime(nanos: 0)) : nil
            return APNsRenderer(settings).render(
                content, to: target, authorization: authorization, into: request)
        case .fcm:
            guard let fcm = app.fcm else { return nil }
            let settings = FCMSettings(
                projectID: projects[app.name] ?? fcm.projectID ?? "PROJECT",
                authority: Self.authority(fcm.endpoint))
            let authorization = AccessToken(
                header: Array("Bearer ***".utf8), generation: 0,
                fetchedAt: MonotonicTime(nanos: 0))
            return FCMRenderer(settings).render(
                content, to: target, authorization: authorization, into: request)
        case .webpush: return app.webPush.map { render(content, to: address, $0, into: request) }
        case .expo:
            guard let expo = app.expo, let credential = ExpoCredential(accessToken: nil) else {
                return nil
            }
            let renderer = ExpoRenderer(credential, authority: Self.authority(expo.endpoint))
            let rendering = renderer.render(content, to: target, into: request.body)
            if case .request = rendering {
                renderer.writeHead(
                    path: ExpoRenderer.sendPath, isCompressed: false, into: request)
                if expo.accessToken != nil { request.add("authorization", "Bearer ***") }
            }
            return rendering
        }
    }

    /// A web push as it would be built, with the payload in the body: nobody but the browser could
    /// read what it is encrypted to, which goes to `sealedBody`.
    private func render(
        _ content: PushContent, to address: DeviceAddress, _ webPush: Configuration.WebPush,
        into request: OutboundRequest
    ) -> Rendering {
        if let id = address.vapidKeyID, !webPush.keys.contains(where: { $0.id == id }) {
            return .rejected(
                reason: .vapidKeyUnknown, detail: "the VAPID key \(id) is not configured")
        }
        let settings = WebPushSettings(ttlMin: Int64(webPush.ttlMin))
        do {
            let subscription = try WebPushSubscriptions(hosts: webPush.hosts, kept: 1)
                .subscription(
                    named: UUIDBytes(high: 0, low: 0), endpoint: address.withToken { Array($0) },
                    p256dh: address.p256dh, auth: address.auth)
            let authorization = VAPIDToken(
                header: Array("vapid t=***, k=***".utf8), generation: 0,
                mintedAt: MonotonicTime(nanos: 0))
            let renderer = try WebPushRenderer(settings)
            let rendering = renderer.render(
                content, to: subscription, authorization: authorization, into: request)
            if case .request = rendering {
                sealedBody = Array(request.body.bytes)
                renderer.showPayload(content, in: request)
            }
            return rendering
        } catch WebPushSubscriptionError.endpoint(.forbidden(let detail)) {
            return .rejected(reason: .endpointForbidden, detail: detail)
        } catch WebPushSubscriptionError.endpoint(.malformed(let detail)),
            WebPushSubscriptionError.keys(let detail)
        {
            return .malformedToken(detail: detail)
        } catch {
            return .rejected(reason: .encryptionFailed, detail: "\(error)")
        }
    }

    private static func authority(_ endpoint: Endpoint) -> String {
        Origin(host: endpoint.host, port: endpoint.port).authority
    }

    /// The request as text, the token named by its hash.
    private func masked(
        _ request: OutboundRequest, _ address: DeviceAddress, _ content: PushContent,
        isSecret: Bool, _ secret: String?, notes: String
    ) -> Explanation.Request {
        // Of an endpoint, all behind the host is the secret.
        let token =
            address.gateway == .webpush
            ? (request.text(":path") ?? "") : address.token
        func mask(_ text: String) -> String {
            token.isEmpty || !isSecret
                ? text : text.replacing(token, with: "<token \(address.tokenName)>")
        }
        let text = mask(request.body.text)
        let body = content.sealed.flatMap { sealed in
            hidesSealed ? text.replacing(sealed.text, with: "<\(sealed.count) bytes of JWE>") : nil
        }
        return Explanation.Request(
            fields: request.fields.map { field in
                (
                    field.name.description,
                    mask(String(decoding: request.value(of: field), as: UTF8.self))
                )
            }, body: body ?? text, sentBody: sealedBody ?? Array(text.utf8), secret: secret,
            bodyBytes: request.body.count, notes: notes,
            doubts: SensitiveValues.found(in: body ?? text))
    }
}

extension Configuration.App {
    /// Whether there is a credential to send with.
    fileprivate func has(_ gateway: Gateway) -> Bool {
        switch gateway {
        case .apns: apns != nil
        case .fcm: fcm != nil
        case .webpush: webPush != nil
        case .expo: expo != nil
        }
    }
}

extension Caps {
    /// What an event counts for, in words.
    fileprivate func lines(of routed: RoutedEvent?, _ envelope: EventEnvelope) -> [String] {
        func text(_ cap: Cap) -> String { ConfigurationSection.text(of: cap) }
        var lines = personal(of: routed?.route).map {
            "counts for its user (\($0.name)), who gets \(text($0.cap)); over_cap beyond that"
        }
        lines += quotas(of: envelope.source).map {
            "counts for its source (\($0.name)), which has \(text($0.cap)); over_quota beyond that"
        }
        if let silent, routed?.kind == .silent || routed?.kind == .hint {
            lines.append(
                "a device at APNs gets \(text(silent)); the newest waits for the next slot")
        }
        return lines
    }
}
