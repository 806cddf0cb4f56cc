// An event with its route: matched and checked before fan-out, written once for each kind of
// reader when the first target of that kind is rendered.

internal import Base
internal import Crypto
internal import Gateways
internal import JSON
internal import Routes
internal import TokenIndex

/// What a route makes of one event. Loop-confined.
///
/// It keeps the route that the event was matched with: a reload in the meantime changes nothing
/// for it.
internal final class RoutedEvent {
    let match: RouteTable.Match
    /// Borrows the event's JSON.
    let event: RouteEvent
    let explicit: ExplicitContent
    /// What was written so far, one for each kind of reader.
    var versions: [ContentVersion] = []

    init(_ match: RouteTable.Match, _ event: RouteEvent, _ explicit: ExplicitContent) {
        self.match = match
        self.event = event
        self.explicit = explicit
    }

    var route: Route { match.route }

    /// What is sent: an event that brings a notification of its own is shown.
    var kind: PushKind {
        switch route.kind {
        case .silent, .hint: explicit.notification == nil ? route.kind : .alert
        case .alert, .call, .raw: route.kind
        }
    }

    /// Why an address gets nothing of it; nil when it does.
    func suppression(of address: DeviceAddress, _ user: UserRecord?) -> Reason? {
        if let preference = route.preference,
            user?.declines(preference) == true || address.optOuts.contains(preference)
        {
            return .optedOut
        }
        if kind == .alert {
            if address.permission == .denied { return .permissionDenied }
            if let channel, address.mutedChannels.contains(channel) { return .channelMuted }
        } else if address.isBrowser {
            // A browser that is shown nothing shows something of its own, or takes the permission
            // away.
            if address.permission == .denied { return .permissionDenied }
            if kind != .raw, !route.hasFallback { return .webRequiresVisible }
        }
        if route.encrypts, !address.hasPublicKeys { return .noDeviceKey }
        return nil
    }

    /// Writes what decides which of a user's addresses get it, and when: the settings that
    /// `suppression`, `Route.addresses` and quiet hours look at. Events for which they are the same
    /// may stand in for each other.
    func writeAudience(to bytes: ByteWriter) {
        func add(_ text: String?) {
            bytes.append(text == nil ? 0 : 1)
            bytes.append(text ?? "")
            bytes.append(0)
        }
        add(kind.rawValue)
        add(route.preference)
        add(channel)
        add(route.encrypts ? "encrypts" : nil)
        add(route.hasFallback ? "fallback" : nil)
        let quiet = route.quiet
        add(quiet.map { "\($0.suppresses) \($0.highPasses) \($0.timeZone)" })
        add(quiet?.hours.map { "\($0.from) \($0.to)" })
        for kind in route.namedAddressKinds ?? [] { add(kind) }
    }

    private var channel: String? {
        explicit.notification?["channel_id"]?.string ?? route.channel(in: match.abilities)
    }

    /// Who reads at an address, as far as the route's texts care.
    func reader(
        at address: DeviceAddress, _ user: UserRecord?, _ clocks: WallClocks
    ) -> Route.Reader {
        Route.Reader(
            locale: route.readsLocale ? address.locale(orOf: user) : nil,
            timeZone: route.readsTimeZone ? address.timeZone(orOf: user, clocks) : nil,
            mustSee: address.isBrowser)
    }
}

extension DeviceAddress {
    /// The device's locale. What it does not say, or what is none, its user may have said.
    func locale(orOf user: UserRecord?) -> String? {
        guard let own = locale else { return user?.locale }
        guard let others = user?.locale, others != own else { return own }
        return Route.Reader.isLocale(own) ? own : others
    }

    /// The same for its time zone.
    fileprivate func timeZone(orOf user: UserRecord?, _ clocks: WallClocks) -> String? {
        guard let own = timeZone else { return user?.timeZone }
        guard let others = user?.timeZone, others != own else { return own }
        return clocks.isKnown(own) ? own : others
    }
}

extension DeviceAddress {
    /// Whether a browser is behind it, at whatever gateway.
    fileprivate var isBrowser: Bool {
        gateway == .webpush || withPlatform { $0.elementsEqual("web".utf8) }
    }

    /// Whether its client left keys to encrypt for.
    fileprivate var hasPublicKeys: Bool { publicKeys.map { $0 != "[]" } ?? false }
}

/// A route's words for one kind of reader. Reused.
internal final class ContentVersion {
    fileprivate(set) var reader = Route.Reader()
    /// For whose limit its body was shortened; nil for the whole body.
    fileprivate var shortenedFor: BodyPlace?
    /// By how many bytes of a request; equal for all targets whose requests are equally long.
    fileprivate var excess = 0
    /// What is encrypted for each target of a route that does so; else empty.
    let secret = ByteWriter(capacity: 0)
    /// Owns the memory of the words.
    fileprivate let parser = JSONParser(maximumBytes: 1 << 20)
    /// What its targets' requests have in common.
    let shared = SharedRequest()
    var content: PushContent?

    fileprivate func fits(
        _ reader: Route.Reader, shortenedFor place: BodyPlace?, by excess: Int
    ) -> Bool {
        shortenedFor == place && self.excess == excess
            && self.reader.mustSee == reader.mustSee
            && self.reader.locale == reader.locale
            && self.reader.timeZone == reader.timeZone
    }
}

/// Where a body stands that is too long, as far as its bytes are counted differently.
private struct BodyPlace: Equatable {
    let gateway: Gateway
    /// Whether its escapes count: FCM and Expo count the text itself, the others the JSON around
    /// it, and so does FCM where the text is in our block, which is JSON text among its data.
    let isJSON: Bool

    init(_ routed: RoutedEvent, _ address: DeviceAddress) {
        gateway = address.gateway
        let isShownByApp =
            gateway == .fcm && routed.route.androidDisplay == .app
            && address.withPlatform { $0.isEmpty || $0.elementsEqual("android".utf8) }
        isJSON = isShownByApp || routed.route.encrypts || gateway != .fcm && gateway != .expo
    }
}

/// Matches events with routes and writes their content. Confined to one thread.
internal final class ContentMaker {
    private let renderer = TextRenderer()
    /// What time it is where people are.
    let clocks = WallClocks()
    private let words = ByteWriter(capacity: 1024)
    private var spare: [ContentVersion] = []
    // For bodies that are too long.
    private lazy var shortening = JSONParser(maximumBytes: 1 << 20)
    private lazy var patching = JSONParser(maximumBytes: 1 << 20)
    private lazy var patch = ByteWriter()
    private lazy var sealedContent = SealedContent()

    /// Versions that are kept for later events.
    private static let spareMax = 64

    /// The event with its route, its own settings completed; nil when no route is for it.
    func route(
        _ envelope: EventEnvelope, app: String, _ eventClass: EventClass, in table: RouteTable,
        count: Int64 = 1
    ) throws(Refusal) -> RoutedEvent? {
        guard !table.isEmpty else { return nil }
        var event = RouteEvent(envelope, app: app)
        event.count = count
        guard let match = table.match(event, of: eventClass) else { return nil }
        return try route(envelope, event, match)
    }

    /// Refuses an event without a route whose own addresses lead where its app does not list.
    func checkAddresses(
        of envelope: EventEnvelope, app: String, in table: RouteTable
    ) throws(Refusal) {
        guard envelope.content.notification != nil else { return }
        do throws(TemplateError) {
            try table.checkAddresses(of: ExplicitContent(envelope.content), app: app)
        } catch { throw envelope.refusal(.contentError, "\(error)") }
    }

    /// The event with the route that it was matched with before; `count` as in `RouteEvent`.
    func route(
        _ envelope: EventEnvelope, app: String, as match: RouteTable.Match, count: Int64
    ) throws(Refusal) -> RoutedEvent {
        var event = RouteEvent(envelope, app: app)
        event.count = count
        return try route(envelope, event, match)
    }

    private func route(
        _ envelope: EventEnvelope, _ event: RouteEvent, _ match: RouteTable.Match
    ) throws(Refusal) -> RoutedEvent {
        let routed = RoutedEvent(match, event, ExplicitContent(envelope.content))
        do throws(TemplateError) {
            try match.route.check(event, routed.explicit, in: match.abilities, with: renderer)
            let key = try match.route.collapseKey(of: event, with: renderer)
            complete(envelope, match.route, collapseKey: key)
        } catch {
            throw envelope.refusal(.contentError, "route \(match.route.name): \(error)")
        }
        return routed
    }

    /// What the event does not say is the route's.
    private func complete(_ envelope: EventEnvelope, _ route: Route, collapseKey: String?) {
        let moment = envelope.time + .seconds(EventEnvelope.oneAttemptSeconds)
        if route.kind == .call {
            // Whatever the event says: nobody wants to hear it ring when the caller has hung up.
            let own = envelope.hasOwnExpiry ? envelope.expiresAt : moment
            envelope.isOneAttempt = true
            envelope.expiresAt = min(own, moment)
        } else if !envelope.hasOwnExpiry, let ttl = route.ttl {
            envelope.isOneAttempt = ttl == .zero
            envelope.expiresAt = ttl == .zero ? moment : envelope.time + ttl
        }
        if !envelope.hasOwnPriority {
            envelope.priority = route.kind == .call ? .high : route.importance.priority
        }
        switch route.kind {
        case .call: envelope.collapseKey = nil
        case .hint: envelope.collapseKey = collapseKey
        case .alert, .silent, .raw:
            if envelope.collapseKey == nil { envelope.collapseKey = collapseKey }
        }
        if !route.takesBadgeFromUnread { envelope.unread = nil }
    }

    /// An event's content without its words. What the event does not say of the unread total is
    /// what its user has.
    func base(
        of envelope: EventEnvelope, _ routed: RoutedEvent?, _ user: UserRecord?, app: String,
        identity: UUIDBytes, now: UnixMillis
    ) -> PushContent {
        let isCounted = routed?.route.takesBadgeFromUnread ?? true
        let content = PushContent(
            messageID: identity, eventType: envelope.type, eventIdentity: identity, now: now,
            audience: envelope.isBroadcast
                ? nil : audience(app: envelope.app ?? app, userID: envelope.userID),
            expiresAt: envelope.expiresAt, storesNothing: envelope.isOneAttempt,
            priority: envelope.priority, collapseKey: envelope.collapseKey,
            unread: envelope.unread ?? (isCounted ? user?.unread : nil),
            cursor: envelope.cursor.map { .init(log: $0.log, seq: $0.sequence) },
            validateOnly: envelope.isValidation)
        content.hasOwnExpiry = envelope.hasOwnExpiry
        return content
    }

    /// The audience tag: the first 8 bytes of a SHA-256 over app and user, so that a client that
    /// knows its own user can compare, and a lock screen tells nothing.
    private func audience(app: String, userID: String) -> String {
        words.removeAll()
        words.append(app)
        words.append(0)
        words.append(userID)
        return SHA256Digest(of: words.bytes).withUnsafeBytes { Hex.encode($0[..<8]) }
    }

    /// The content of an event that brings all of it itself.
    func content(
        of envelope: EventEnvelope, base: PushContent
    ) throws(ContentError) -> PushContent {
        let content = base
        try content.take(
            notification: envelope.content.notification, data: envelope.content.data,
            apns: envelope.content.apns, fcm: envelope.content.fcm,
            webpush: envelope.content.webpush, expo: envelope.content.expo)
        return content
    }

    /// The words for an address; `base` makes the content without words. With an excess the body
    /// is shortened by at least so many bytes.
    func version(
        of routed: RoutedEvent, for address: DeviceAddress, _ user: UserRecord?,
        without excess: Int, base: () -> PushContent
    ) throws(ContentError) -> ContentVersion {
        let reader = routed.reader(at: address, user, clocks)
        let place = excess > 0 ? BodyPlace(routed, address) : nil
        if let version = routed.versions.first(where: {
            $0.fits(reader, shortenedFor: place, by: excess)
        }) {
            return version
        }
        let version = spare.popLast() ?? ContentVersion()
        version.reader = reader
        version.shortenedFor = place
        version.excess = excess
        do throws(ContentError) {
            version.content = try content(of: routed, version, base(), without: excess)
        } catch {
            give(version)
            throw error
        }
        routed.versions.append(version)
        return version
    }

    /// What a result says of a payload that is too large.
    static func sizes(_ bytes: Int, _ limit: Int) -> String {
        "the payload has \(bytes) bytes, \(limit) are allowed"
    }

    private func content(
        of routed: RoutedEvent, _ version: ContentVersion, _ base: PushContent,
        without excess: Int
    ) throws(ContentError) -> PushContent {
        words.removeAll()
        do throws(TemplateError) {
            try routed.route.write(
                routed.event, routed.explicit, for: version.reader, in: routed.match.abilities,
                with: renderer, to: words)
        } catch {
            throw ContentError(field: error.field, problem: error.problem)
        }
        if let place = version.shortenedFor {
            shortenBody(by: excess, at: place, sealed: routed.route.encrypts)
        }
        if routed.route.encrypts { try hideSecrets(in: version) }
        let root: JSONValue
        do throws(JSONError) {
            root = try version.parser.parse(words.bytes)
        } catch {
            throw ContentError(field: "the route's content", problem: "\(error)")
        }
        let content = base
        content.kind = routed.kind
        content.importance = routed.kind == .alert ? routed.route.importance : nil
        content.isShownByAndroidApp = routed.route.androidDisplay == .app
        content.fcmCollapseKey = routed.route.fcmCollapseKey
        try content.take(
            notification: root["notification"], data: root["data"], apns: root["apns"],
            fcm: root["fcm"], webpush: root["webpush"], expo: root["expo"])
        // What is encrypted differs from target to target.
        content.shared = routed.route.encrypts ? nil : version.shared
        return content
    }

    /// Moves what only the device may read out of the words, and leaves the general text.
    private func hideSecrets(in version: ContentVersion) throws(ContentError) {
        let root: JSONValue
        do throws(JSONError) {
            root = try shortening.parse(words.bytes)
        } catch {
            throw ContentError(field: "the route's content", problem: "\(error)")
        }
        patch.removeAll()
        SecretWords.split(root, clear: patch, secret: version.secret)
        words.removeAll()
        words.append(patch.bytes)
    }

    /// Encrypts a version's secrets for a target, as its content says who that is.
    func seal(
        _ version: ContentVersion, as content: PushContent, app: String, for address: DeviceAddress
    ) -> SealedContent.Answer {
        sealedContent.seal(version.secret.bytes, as: content, app: app, for: address)
    }

    /// Takes at least so many bytes off the end of the notification's body, at the boundary of a
    /// character, the ellipsis counted. Nothing else shrinks: a body that is gone altogether
    /// leaves a payload that is still too large, and is refused as that.
    private func shortenBody(by excess: Int, at place: BodyPlace, sealed isSealed: Bool) {
        // Encrypted text goes out in base64url, four characters for three bytes.
        let excess = isSealed ? (excess + 1) * 3 / 4 + 1 : excess
        guard let root = try? shortening.parse(words.bytes),
            let body = root["notification"]?["body"]?.string
        else { return }
        guard let kept = Shortening.prefix(of: body, without: excess, asJSON: place.isJSON) else {
            return
        }
        patch.removeAll()
        patch.append("{\"notification\":{\"body\":")
        patch.append(jsonString: kept)
        patch.append("}}")
        guard let change = try? patching.parse(patch.bytes) else { return }
        words.removeAll()
        JSONMerge.write(root, patchedWith: change, to: words)
    }

    /// Takes back what an event had.
    func recycle(_ routed: RoutedEvent) {
        for version in routed.versions { give(version) }
        routed.versions.removeAll()
    }

    private func give(_ version: ContentVersion) {
        version.content = nil
        version.shared.forget()
        version.secret.removeAll()
        if spare.count < Self.spareMax { spare.append(version) }
    }
}

extension RouteEvent {
    fileprivate init(_ envelope: EventEnvelope, app: String) {
        self.init(
            type: envelope.type, id: envelope.id, userID: envelope.resultUserID ?? "", app: app,
            source: envelope.source, time: envelope.time)
        unread = envelope.unread
        cursor = envelope.cursor.map { ($0.log, $0.sequence) }
        labels = envelope.labels
        payload = envelope.content.payload
    }
}

extension ExplicitContent {
    fileprivate init(_ content: EventContent) {
        self.init()
        notification = content.notification
        data = content.data
        apns = content.apns
        fcm = content.fcm
        webpush = content.webpush
        expo = content.expo
    }
}
