// The one target of an event that a gateway fans out: an address that no index knows. It goes the
// way of every other address, is never looked up, and no verdict ends it.

internal import Base
internal import EventLoop
internal import Gateways
internal import TokenIndex

extension EventEnvelope {
    /// The address of a broadcast; nil when the event is for a user.
    ///
    /// Its id, from which result and message id are made, is
    /// `<app>/-/<kind>/<environment>/<name>`, the same on every road the event may take.
    func broadcastAddress(app: String) -> DeviceAddress? {
        guard let to,
            let id = AddressID(
                app: app, installID: Self.broadcastInstall, kind: to.kind.rawValue,
                instance: "\(to.environment.rawValue)/\(to.name)")
        else { return nil }
        var fields = DeviceFields(
            id: id, userID: nil, platform: "", gateway: to.kind.gateway,
            environment: to.environment, token: to.name, registeredAt: UnixMillis(0))
        fields.permission = .granted
        return DeviceAddress(fields)
    }

    /// Stands where an install's id stands; results say null.
    private static var broadcastInstall: String { "-" }
}

extension Lane {
    /// Fans a broadcast out without a look-up; false when the event is for a user.
    func fanOutBroadcast(_ event: EventInFlight) -> Bool {
        guard let envelope = event.envelope, let app = event.app,
            let address = envelope.broadcastAddress(app: app.name)
        else { return false }
        fanOut(event, [address], dropped: 0, at: loop.now)
        return true
    }
}
