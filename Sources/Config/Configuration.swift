// What an operator can say in `bugle.yaml`, as values. Every field has its final value: defaults
// are applied, environment variables replaced, relative paths resolved.

public import Base
public import Telemetry

/// A valid configuration.
public struct Configuration: Sendable {
    /// The largest configuration file, in bytes.
    public static let fileBytesMax = 1 << 20

    /// The brokers, topics and client properties.
    public var kafka: Kafka
    /// Where the token index lives when its store is `redis`.
    public var redis: Redis
    /// How the token index is kept.
    public var index: Index
    /// How gateways are reached.
    public var egress: Egress
    /// The apps by name, in the order of the file; at least one.
    public var apps: [App]
    /// How many lanes run.
    public var lanes: Lanes
    /// What this process does; at least one role.
    public var roles: Set<Role>
    /// Where metrics and health are served; default 127.0.0.1:9464.
    public var admin: HostPort
    /// How long a planned stop waits for open work; 0 s to 10 min, default 20 s.
    public var drainDeadline: TimeSpan
    /// How events are sent.
    public var dispatch: Dispatch
    /// Bounds on records and users.
    public var limits: Limits
    /// What is logged, and how.
    public var log: Logging
    /// Where traces go; nil: nowhere.
    public var tracing: Tracing?
    /// How CloudEvents are read.
    public var cloudEvents: CloudEvents
    /// The sections `routes` and `content`, which the room of routes reads.
    public var routing: Sections
    /// The file as it was read, before environment variables; it holds no secrets.
    public var sourceText: String

    /// The app of that name.
    public func app(named name: String) -> App? { apps.first { $0.name == name } }

    /// The parts of the work that a process takes on.
    public enum Role: String, Sendable, CaseIterable {
        /// Sends pushes.
        case dispatch
        /// Builds the token index.
        case index
    }

    /// The number of lanes.
    public enum Lanes: Sendable, Equatable {
        /// As many as the process has cores, at most 4.
        case auto
        /// 1 to 64.
        case count(Int)
    }

    /// The token index.
    public struct Index: Sendable {
        /// The kinds of store.
        public enum Store: String, Sendable, CaseIterable {
            /// In Redis, shared by all replicas.
            case redis
            /// In the memory of this process.
            case memory
        }

        /// The store; default `redis`.
        public var store: Store
        /// When a fuse trips.
        public var fuse: Fuse
        /// When an address is stale.
        public var staleness: Staleness
        /// How stale addresses are looked for.
        public var sweep: Sweep
        /// How far the topics may be ahead of what look-ups show; beyond it they wait. 10 s to
        /// 1 h, default 2 min.
        public var lagMax: TimeSpan
        /// Through which gateway an install is reached that could be reached through several;
        /// what is not named comes last. Default: apns, fcm, webpush, expo.
        public var gatewayPreference: [Gateway]
        /// Tables whose change records are on the topic of devices under names that are not ours.
        public var tables: [Table]
    }

    /// A Redis server, or a Redis Cluster.
    public struct Redis: Sendable {
        /// Whether a cluster stands behind the addresses.
        public enum Cluster: String, Sendable, CaseIterable {
            /// The server is asked.
            case auto
            /// A single server is an error.
            case `true`
            /// A single server; it is not asked.
            case `false`
        }

        /// How connections are secured.
        public struct TLS: Sendable, Equatable {
            /// Certificate authorities to trust besides the system's, a PEM file.
            public var caFile: String?
            /// The client's certificate, a PEM file; given together with its key, or not.
            public var certificateFile: String?
            /// The key of the client's certificate, a PEM file.
            public var keyFile: String?
            /// The name that the servers' certificates must have; nil for the host of the address.
            public var serverName: String?

            /// TLS with the given files.
            public init(
                caFile: String? = nil, certificateFile: String? = nil, keyFile: String? = nil,
                serverName: String? = nil
            ) {
                self.caFile = caFile
                self.certificateFile = certificateFile
                self.keyFile = keyFile
                self.serverName = serverName
            }
        }

        /// The server, or the nodes of a cluster that are asked for the others; at least one,
        /// default localhost:6379.
        public var addresses: [HostPort]
        /// Whether a cluster is expected; default `auto`, and with several addresses `true`.
        public var cluster: Cluster
        /// TLS; nil for plain connections.
        public var tls: TLS?
        /// What every key starts with; at most 64 bytes, default `bugle:`.
        public var prefix: String
        /// The database number; 0 to 65535, default 0, and 0 in a cluster.
        public var database: Int
        /// The ACL user; nil for the default user.
        public var username: String?
        /// The password; nil when the server asks for none.
        public var password: SecretSource?
        /// How long an answer may take; 10 ms to 60 s, default 1 s.
        public var timeout: TimeSpan

        /// The addresses as text.
        public var addressText: String { addresses.map(\.description).joined(separator: ", ") }
    }

    /// One app: the namespace of its users and devices, and its gateways; at least one of them.
    public struct App: Sendable {
        /// The name; 1 to 64 bytes out of letters, digits, `.`, `_` and `-`.
        public var name: String
        /// How the app reaches APNs.
        public var apns: APNs?
        /// How the app reaches FCM.
        public var fcm: FCM?
        /// How the app reaches the push services of browsers.
        public var webPush: WebPush?
        /// How the app reaches Expo's push service.
        public var expo: Expo?
        /// What routes may ask of the app.
        public var abilities: Abilities
    }

    /// An app at Apple.
    public struct APNs: Sendable {
        /// The team's 10 characters.
        public var teamID: String
        /// The signing key's 10 characters.
        public var keyID: String
        /// The signing key, a PEM text (`AuthKey_….p8`); with a certificate the certificate's key.
        public var key: SecretSource
        /// A client certificate (PEM) in place of provider tokens; team and key id are then empty.
        public var certificateFile: String?
        /// The app's bundle identifier.
        public var topic: String
        /// The endpoint for production tokens.
        public var production: Endpoint
        /// The endpoint for tokens of development builds.
        public var sandbox: Endpoint
        /// The endpoint where channels of production are managed.
        public var channels: Endpoint
        /// The endpoint where channels of the sandbox are managed.
        public var channelsSandbox: Endpoint
        /// Certificate authorities to trust besides the system's, a PEM file.
        public var caFile: String?
    }

    /// An app at Google.
    public struct FCM: Sendable {
        /// The service account, a JSON text as the console hands it out.
        public var serviceAccount: SecretSource
        /// The project; nil for the one that the service account names.
        public var projectID: String?
        /// The endpoint of the send calls.
        public var endpoint: Endpoint
        /// Where access tokens are fetched; nil for the address that the service account names.
        public var tokenEndpoint: Endpoint?
        /// How long the way up to the project's whole rate takes, 0 s to 1 h; default 60 s, 0 for none.
        public var ramp: TimeSpan
        /// Certificate authorities to trust besides the system's, a PEM file.
        public var caFile: String?
    }

    /// An app at Expo: a project.
    public struct Expo: Sendable {
        /// The access token; nil for a project without enhanced push security.
        public var accessToken: SecretSource?
        /// The endpoint; default https://exp.host.
        public var endpoint: Endpoint
        /// Certificate authorities to trust besides the system's, a PEM file.
        public var caFile: String?
    }

    /// An app at the push services of browsers.
    public struct WebPush: Sendable {
        /// A key that signs VAPID tokens.
        public struct Key: Sendable {
            /// What registrations call it: `vapid_key_id`; 1 to 256 bytes.
            public var id: String
            /// The private key: PEM, 32 bytes in base64url, or JSON with `privateKey`.
            public var key: SecretSource
            /// The public half in base64url, to be compared with the private one; nil for no
            /// comparison.
            public var publicKey: String?
        }

        /// Whom push services may turn to: `mailto:` or `https:`.
        public var subject: String
        /// The keys, at least one; the first is tried first for registrations that name none.
        public var keys: [Key]
        /// Hosts that are sent to: names, `*.example.net`, either with a port, or `*`; nil for
        /// the services of the browsers.
        public var allowedHosts: [String]?
        /// Whether endpoints on this machine are sent to: for tests. Default false.
        public var allowLoopback: Bool
        /// The shortest time to live that is sent, in seconds; 0 to 3600, default 0.
        public var ttlMin: Int
        /// Certificate authorities to trust besides the system's, a PEM file.
        public var caFile: String?
    }

    /// Bounds on records and users.
    public struct Limits: Sendable {
        /// The largest event in bytes; 1 KiB to 512 KiB, default 256 KiB.
        public var eventBytes: Int
        /// The most addresses of one user that a push goes to; 1 to 10,000, default 1,000.
        public var addressesPerUser: Int
    }

    /// What is logged.
    public struct Logging: Sendable {
        /// The least important level that is written; default `info`.
        public var level: LogLevel
        /// The look of the lines; nil for pretty on a terminal and JSON elsewhere.
        public var format: LogFormat?
    }

    /// Where traces go.
    public struct Tracing: Sendable, Equatable {
        /// The collector's host and port, plain HTTP.
        public var collector: HostPort
        /// The path that spans are posted to; default `/v1/traces`.
        public var path: String
        /// The share of events without a `traceparent` for which a trace begins here; 0 to 1,
        /// default 0.
        public var sample: Double
        /// A file with more headers, lines `Name: value`.
        public var headersFile: String?
    }

    /// How CloudEvents are read.
    public struct CloudEvents: Sendable {
        /// Whether an event without the extension `userid` takes its user from `subject`; default
        /// false.
        public var userFromSubject: Bool
    }
}

extension Configuration {
    /// Kafka.
    public struct Kafka: Sendable {
        /// How results and offsets are committed.
        public enum Commit: String, Sendable, CaseIterable {
            /// Results and offsets in one transaction: a reader of committed records sees every
            /// outcome once, whatever crashes.
            case transactional
            /// Results first, offsets after them: after a crash an outcome may appear twice.
            case plain
        }

        /// A client property of librdkafka, passed through.
        public struct Property: Sendable, Equatable {
            /// The property's name.
            public var name: String
            /// The value, which may be a secret.
            public var value: SecretSource

            /// A property with its value.
            public init(name: String, value: SecretSource) {
                self.name = name
                self.value = value
            }
        }

        /// The first brokers to contact: `host:port`, separated by commas.
        public var brokers: String
        /// The consumer group; default `bugle`.
        public var group: String
        /// This replica's name within the group, which no other replica may have; default the host
        /// name.
        public var instance: String
        /// Whether the name is one of those that replicas lease in Redis: `instance: auto`.
        public var isInstanceLeased: Bool
        /// The commit mode; default `transactional`.
        public var commit: Commit
        /// Whether the broker keeps this replica's partitions for it over a restart; default false.
        public var staticMembership: Bool
        /// The topics.
        public var topics: Topics
        /// Other client properties, in the order of the file.
        public var properties: [Property]
    }

    /// The topics' names.
    public struct Topics: Sendable {
        /// A topic with events.
        public struct Events: Sendable, Equatable {
            /// The topic's name.
            public var name: String
            /// How its events are treated when room is short.
            public var eventClass: EventClass

            /// A topic with the class of its events.
            public init(name: String, eventClass: EventClass) {
                self.name = name
                self.eventClass = eventClass
            }
        }

        /// The topics with events, at least one; default `push.events`, transactional.
        public var events: [Events]
        /// Device addresses; default `push.devices`.
        public var devices: String
        /// Verdicts on tokens; default `push.invalidations`.
        public var invalidations: String
        /// What people said for all their devices; default `push.users`. It need not exist.
        public var users: String
        /// Outcomes; default `push.results`.
        public var results: String
        /// Records that could not be processed; default `push.events-dlt`.
        public var deadLetters: String
        /// Expo's later word on messages; default `push.receipts`.
        public var receipts: String
        /// What Expo's receipts are asked for by; default `push.expo-tickets`.
        public var tickets: String
        /// What devices acknowledge; default `push.acks`.
        public var acks: String
        /// What operators ask for; default `push.control`.
        public var control: String
        /// What the replicas say about themselves; default `push.status`.
        public var status: String
        /// What the names of the retry topics begin with; default `push.events-retry`.
        public var retry: String
        /// What the names of the parking topics begin with; default `push.events-parked`.
        public var parked: String
    }

    /// How events are sent.
    public struct Dispatch: Sendable {
        /// Connections of one lane to one gateway.
        public struct Connections: Sendable, Equatable {
            /// How many are kept open; 1 to 100.
            public var min: Int
            /// The most that are opened; 1 to 100, not below `min`.
            public var max: Int

            /// A range of connections.
            public init(min: Int, max: Int) {
                self.min = min
                self.max = max
            }
        }

        /// How a push is tried again where the gateway does not say otherwise.
        public struct Retry: Sendable, Equatable {
            /// The most attempts; 1 to 10, default 3.
            public var attempts: Int
            /// The first wait, doubled for each further one; 1 ms to 60 s, default 200 ms.
            public var base: TimeSpan
            /// The longest wait in memory; longer ones go through a retry topic. From `base` to
            /// 1 min, default 5 s.
            public var maxWait: TimeSpan
        }

        /// The most events that a process works on; 1 to 1,000,000, default 2,000.
        public var maxInFlightEvents: Int
        /// The most pushes under way per app, gateway and environment; 1 to 100,000, default 2,000.
        public var inFlightPerBulkhead: Int
        /// Connections to APNs; default 2 to 10.
        public var apnsConnections: Connections
        /// Connections to FCM; default 2 to 4.
        public var fcmConnections: Connections
        /// Retries.
        public var retry: Retry
        /// From a message to the question for its receipt, and between two questions; 1 s to 6 h,
        /// default 15 min, as Expo asks.
        public var receiptWait: TimeSpan
        /// For how long an event with the same app, source and id is not pushed again; 1 s to 7 d,
        /// zero for never, which is the default.
        public var deduplicate: TimeSpan
    }
}
