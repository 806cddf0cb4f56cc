// A route: what a kind of event becomes. Compiled when the configuration is read, immutable, shared
// by all threads; an event in flight keeps the one it was matched with.

public import Base
public import Config
internal import JSON

/// A compiled route.
public final class Route: Sendable {
    /// Who shows a notification on Android.
    public enum AndroidDisplay: String, Sendable, CaseIterable {
        /// The system, also when the app does not run.
        case system
        /// The app: it gets a data message of high priority.
        case app
    }

    /// Where the badge comes from.
    internal enum Badge: Sendable {
        /// The event's `unread`.
        case unread
        /// There is none.
        case none
        case number(Int64)
        /// What stands in where the field is missing; nil for no badge, when it may be.
        case field(Template.Reference, otherwise: Int64?)
    }

    /// A button of the notification.
    internal struct Action: Sendable {
        let id: String
        let title: LocalizedText
        let link: Template?
    }

    /// The texts of a notification.
    internal struct Texts: Sendable {
        var title: LocalizedText?
        var subtitle: LocalizedText?
        var body: LocalizedText?

        var all: [LocalizedText] { [title, subtitle, body].compactMap { $0 } }

        /// The same with the texts that another set has.
        func replaced(by other: Texts?) -> Texts {
            Texts(
                title: other?.title ?? title, subtitle: other?.subtitle ?? subtitle,
                body: other?.body ?? body)
        }
    }

    /// How a burst of events becomes one push or two.
    public struct Coalescing: Sendable {
        /// From the first event of a burst to the push that stands for the others.
        public let window: TimeSpan
        /// Whether the first event is sent at once; otherwise it waits for the others.
        public let sendsFirst: Bool
        /// What is shown instead of the route's texts when several events are told of.
        internal let summary: Texts
    }

    /// How a person is left alone at night.
    public struct Quiet: Sendable {
        /// What becomes of an event in the meantime.
        internal enum Manner: String, CaseIterable {
            case hold, suppress
        }

        /// Whether an event ends at once; otherwise it waits until quiet hours are over.
        public let suppresses: Bool
        /// Whether events of high priority are sent all the same.
        public let highPasses: Bool
        /// The quiet hours of people who have not said theirs; nil for none.
        public let hours: QuietHours?
        /// The time zone of people of whom nobody knows it.
        public let timeZone: String
    }

    /// What becomes of the first event of a burst.
    internal enum First: String, CaseIterable {
        case send, hold
    }

    /// Overrides by gateway.
    internal struct Overrides: Sendable {
        var apns: JSONTemplate?
        var fcm: JSONTemplate?
        var webpush: JSONTemplate?
        var expo: JSONTemplate?

        var all: [JSONTemplate] { [apns, fcm, webpush, expo].compactMap { $0 } }
    }

    /// The type or prefix it is for, with a number behind `#` from the second of a type on.
    public let name: String
    /// Where it stands in the file.
    public let line: Int
    /// What it sends.
    public let kind: PushKind
    /// How much attention it asks for.
    public let importance: Importance
    /// How long its pushes are worth something when the event does not say.
    public let ttl: TimeSpan?
    /// What a person can opt out of.
    public let preference: String?
    /// Whether an unclear answer is left at that, rather than sent again.
    public let avoidsDuplicates: Bool
    /// Whether an event whose retries are used up, or whose time is over, leaves a copy with the
    /// dead letters.
    public let keepsDeadLetters: Bool
    /// Who shows it on Android.
    public let androidDisplay: AndroidDisplay
    /// FCM's `collapse_key`, by which messages to an absent device replace each other.
    public let fcmCollapseKey: String?
    /// Whether everything that it says is encrypted for each device, save a general text.
    public let encrypts: Bool
    /// Whether the badge is the event's `unread`.
    public let takesBadgeFromUnread: Bool
    /// Whether a notification that is too large may get a shorter body.
    public let shrinksBody: Bool
    /// How bursts become one push; nil when every event is one.
    public let coalescing: Coalescing?
    /// How people are left alone at night; nil when they are not.
    public let quiet: Quiet?
    /// Whether it has `quiet`: asked for every event.
    public let hasQuietHours: Bool
    /// Whether it has `coalescing`: asked for every event.
    public let coalesces: Bool

    /// The apps it is for; nil for all.
    internal let apps: Set<String>?
    /// The class of the topics that its events come from; nil for any.
    internal let eventClass: EventClass?
    internal let conditions: [Condition]
    /// The kinds of addresses that it names; nil for what its kind is sent to.
    internal let addressKinds: Set<String>?
    internal let channel: String?
    internal let collapse: Template?
    internal let languages: Languages
    internal let texts: Texts
    /// What is shown when several events are told of.
    internal let burstTexts: Texts
    /// What is shown where something has to be.
    internal let fallback: Texts
    internal let image: Template?
    internal let link: Template?
    internal let actions: [Action]
    internal let pointer: Template?
    internal let thread: Template?
    internal let category: String?
    internal let sound: String?
    internal let badge: Badge
    internal let data: JSONTemplate?
    internal let overrides: Overrides
    internal let sensitive: Set<FieldPath>
    /// The time zone of devices that name none.
    internal let timeZone: String

    // What is looked at for every event, put together once.

    internal let summaryTexts: [LocalizedText]
    internal let fallbackTexts: [LocalizedText]
    internal let allOverrides: [JSONTemplate]
    /// The fields of what is no text and no address.
    internal let plainReferences: [Template.Reference]

    /// Whether readers in different languages or regions get different texts.
    public let readsLocale: Bool
    /// Whether readers in different time zones get different texts.
    public let readsTimeZone: Bool

    internal init(_ settings: RouteSettings, name: String, line: Int) {
        self.name = name
        self.line = line
        kind = settings.kind
        importance = settings.importance
        ttl = settings.ttl
        preference = settings.preference
        avoidsDuplicates = settings.avoidsDuplicates
        keepsDeadLetters = settings.keepsDeadLetters
        encrypts = settings.encrypts
        // Only the app can show what only the app can read.
        androidDisplay = settings.androidDisplay ?? (settings.encrypts ? .app : .system)
        fcmCollapseKey = settings.fcmCollapseKey
        if case .unread = settings.badge {
            takesBadgeFromUnread = true
        } else {
            takesBadgeFromUnread = false
        }
        shrinksBody = settings.shrinksBody
        coalescing = settings.coalescing
        coalesces = settings.coalescing != nil
        quiet = settings.quiet
        hasQuietHours = settings.quiet != nil
        burstTexts = settings.texts.replaced(by: settings.coalescing?.summary)
        apps = settings.apps
        eventClass = settings.eventClass
        conditions = settings.conditions
        addressKinds = settings.addressKinds
        channel = settings.channel
        collapse = settings.collapse
        languages = settings.languages
        texts = settings.texts
        fallback = settings.fallback
        image = settings.image
        link = settings.link
        actions = settings.actions
        pointer = settings.pointer
        thread = settings.thread
        category = settings.category
        sound = settings.sound
        badge = settings.badge
        data = settings.data
        overrides = settings.overrides
        sensitive = settings.sensitive
        timeZone = settings.timeZone
        summaryTexts = settings.coalescing?.summary.all ?? []
        fallbackTexts = settings.fallback.all
        allOverrides = settings.overrides.all
        plainReferences =
            (settings.pointer?.references ?? []) + (settings.thread?.references ?? [])
        let texts = settings.localizedTexts
        let others = (settings.overrides.all + [settings.data].compactMap { $0 })
            .flatMap(\.templates)
        let isTranslated = texts.contains { $0.forms.count { $0 != nil } > 1 }
        readsLocale =
            isTranslated || texts.contains(where: \.isLocal) || others.contains(where: \.isLocal)
        readsTimeZone =
            texts.flatMap(\.templates).contains(where: \.showsTime)
            || others.contains(where: \.showsTime)
    }

    /// Whether the event is one of its own; its type fits already.
    internal func accepts(_ event: borrowing RouteEvent, of eventClass: EventClass) -> Bool {
        if let apps, !apps.contains(event.app) { return false }
        if let wanted = self.eventClass, wanted != eventClass { return false }
        for condition in conditions where !condition.holds(for: event) { return false }
        return true
    }

    /// Whether it has conditions beside its type.
    public var hasConditions: Bool { !conditions.isEmpty }

    /// Whether it is sent to addresses of a kind at a gateway.
    ///
    /// A call rings where the system lets an app ring: at VoIP addresses of Apple's devices, and
    /// at the ordinary addresses of all others.
    public func addresses(kind: String, at gateway: Gateway) -> Bool {
        if let addressKinds { return addressKinds.contains(kind) }
        guard self.kind == .call else { return kind == "alert" }
        return gateway == .apns ? kind == "voip" : kind == "alert"
    }

    /// The kinds of addresses that it names, in order; nil for what its kind is sent to.
    public var namedAddressKinds: [String]? { addressKinds?.sorted() }

    /// The Android channel in an app: the route's, or the app's for that importance.
    public func channel(in abilities: Configuration.App.Abilities) -> String? {
        channel ?? abilities.androidChannels[importance]
    }
}

/// What a route is compiled from: every setting with its value.
internal struct RouteSettings {
    var kind = PushKind.alert
    var importance = Importance.normal
    var ttl: TimeSpan?
    var preference: String?
    var avoidsDuplicates = false
    var keepsDeadLetters = false
    var encrypts = false
    /// nil where the route does not say.
    var androidDisplay: Route.AndroidDisplay?
    var fcmCollapseKey: String?
    var shrinksBody = true
    var coalescing: Route.Coalescing?
    var quiet: Route.Quiet?
    var apps: Set<String>?
    var eventClass: EventClass?
    var conditions: [Condition] = []
    var addressKinds: Set<String>?
    var channel: String?
    var collapse: Template?
    var languages: Languages
    var texts = Route.Texts()
    var fallback = Route.Texts()
    var image: Template?
    var link: Template?
    var actions: [Route.Action] = []
    var pointer: Template?
    var thread: Template?
    var category: String?
    var sound: String?
    var badge = Route.Badge.unread
    var data: JSONTemplate?
    var overrides = Route.Overrides()
    var sensitive: Set<FieldPath> = []
    var timeZone: String

    /// Everything that people read.
    var localizedTexts: [LocalizedText] {
        texts.all + (coalescing?.summary.all ?? []) + fallback.all + actions.map(\.title)
    }
}
