internal import Base
internal import Config
internal import Crypto
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import JSON
internal import Pipeline

/// Apple's management of broadcast channels ("Sending channel management requests to APNs"), for
/// one app in one environment.
internal struct ChannelAPI {
    private let topic: String
    private let origin: Origin
    private let tls: TLSContext
    private let egress: Egress
    /// The field `authorization`; nil where a certificate stands in.
    private let authorization: String?

    init(
        _ app: Configuration.App, of configuration: Configuration, environment: GatewayEnvironment
    ) throws(Failure) {
        guard let apns = app.apns else {
            throw .failed("app \(app.name) has no section apns; channels are APNs'")
        }
        topic = apns.topic
        let endpoint = environment == .sandbox ? apns.channelsSandbox : apns.channels
        origin = Origin(host: endpoint.host, port: endpoint.port)
        do {
            egress = try GatewayAccess(configuration).egress
            let loader = PushAppLoader()
            loader.sharedCAFile = configuration.egress.caFile
            var loaded = PushApp(name: app.name)
            try loader.load(.apns, of: app, into: &loaded)
            let time = SystemTime.shared
            let token = try loaded.apns?.credential.token(at: time.monotonic, wall: time.wall)
            authorization = token.map { String(decoding: $0.header, as: UTF8.self) }
            let place = loaded.apns?.production ?? loaded.certificateAPNs?.production
            tls = try TLSContext.client(
                trusting: place?.authorities ?? .none, alpn: ["h2"],
                identity: loaded.certificateAPNs?.identity)
        } catch let failure as Failure {
            throw failure
        } catch {
            throw .failed("\(error)")
        }
    }

    /// Creates a channel and returns its id. `storage` 0: nothing is kept for devices that are
    /// away; 1: the newest message is, for 8 hours at most.
    func create(storage: Int) throws(Failure) -> String {
        let answer = try call(
            "POST", "channels",
            body: "{\"message-storage-policy\":\(storage),\"push-type\":\"LiveActivity\"}")
        guard answer.status == 201, let id = answer.channelID else { throw refusal(answer) }
        return id
    }

    /// Every channel's id.
    func list() throws(Failure) -> [String] {
        let answer = try call("GET", "all-channels")
        guard answer.status == 200, let root = try? JSONParser().parse(answer.body),
            let channels = root["channels"], channels.isArray
        else { throw refusal(answer) }
        var ids: [String] = []
        channels.forEachElement { if let id = $0.string { ids.append(id) } }
        return ids
    }

    /// A channel's storage policy.
    func read(_ id: String) throws(Failure) -> Int64 {
        let answer = try call("GET", "channels", channel: id)
        guard answer.status == 200, let root = try? JSONParser().parse(answer.body),
            let policy = root["message-storage-policy"]?.int64
        else { throw refusal(answer) }
        return policy
    }

    /// Deletes a channel for good; one that is gone already counts as deleted.
    func delete(_ id: String) throws(Failure) {
        let answer = try call("DELETE", "channels", channel: id)
        guard answer.status != 204, answer.status != 404 else { return }
        guard Self.reason(in: answer) != "ChannelNotRegistered" else { return }
        throw refusal(answer)
    }

    private func call(
        _ method: String, _ resource: String, channel: String? = nil, body: String = ""
    ) throws(Failure) -> GatewayCall.Answer {
        var fields: [(StaticString, String)] = [
            (":method", method), (":scheme", "https"), (":authority", origin.authority),
            (":path", "/1/apps/\(topic)/\(resource)"),
        ]
        if let authorization { fields.append(("authorization", authorization)) }
        if let channel { fields.append(("apns-channel-id", channel)) }
        if !body.isEmpty { fields.append(("content-type", "application/json")) }
        return try GatewayCall.send(fields, body: body, to: origin, tls: tls, egress)
    }

    private static func reason(in answer: GatewayCall.Answer) -> String? {
        (try? JSONParser().parse(answer.body))?["reason"]?.string
    }

    private func refusal(_ answer: GatewayCall.Answer) -> Failure {
        let reason = Self.reason(in: answer) ?? "no reason"
        return .failed(
            "\(origin.host): \(answer.status) \(reason.printable)" + (Self.advice[reason] ?? ""))
    }

    /// What to do about the answers that somebody can do something about.
    private static let advice = [
        "FeatureNotEnabled":
            ": enable Broadcast Capability for the App ID in Apple's developer portal",
        "BroadcastFeatureNotEnabled":
            ": enable Broadcast Capability for the App ID in Apple's developer portal",
        "CannotCreateChannelConfig":
            ": the app has the 10,000 channels it may have in this environment; delete unused ones",
        "ChannelNotRegistered": ": no such channel in this environment",
        "TopicMismatch": ": the key does not belong to the team of the app's bundle id",
        "InvalidProviderToken": ": check team_id, key_id and key_file",
        "BadEnvironmentKeyInToken": ": the key is restricted to the other environment",
        "BadEnvironmentKeyIdInToken": ": the key is restricted to the other environment",
        "ExpiredProviderToken": ": check this machine's clock",
    ]
}
