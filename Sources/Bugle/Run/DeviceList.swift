// A user's devices for a command: out of a file, or as the token index has them now.

internal import Base
internal import Config
internal import EventLoop
internal import JSON
internal import Telemetry
internal import TokenIndex

/// Where a command gets a user's addresses from.
internal enum DeviceList {
    /// The addresses in a file: one record of `push.devices`, or one on each line.
    static func read(_ path: String) throws(Failure) -> [DeviceAddress] {
        let file = try EventFile(path)
        var addresses: [DeviceAddress] = []
        for (number, bytes) in documents(file.bytes).enumerated() {
            addresses.append(try address(bytes, "\(file.name): record \(number + 1)"))
        }
        guard !addresses.isEmpty else { throw .failed("\(file.name): no device in it") }
        return addresses
    }

    private static func documents(_ bytes: [UInt8]) -> [[UInt8]] {
        if (try? JSONParser().parse(bytes)) != nil { return [bytes] }
        return bytes.split(separator: 0x0A).map(Array.init)
            .filter { line in line.contains { $0 > 0x20 } }
    }

    private static func address(
        _ bytes: [UInt8], _ place: String
    ) throws(Failure) -> DeviceAddress {
        let parser = JSONParser()
        let root: JSONValue
        do throws(JSONError) {
            root = try parser.parse(bytes)
        } catch {
            throw .failed("\(place): \(error)")
        }
        guard
            let id = AddressID(
                app: root["app"]?.string ?? "", installID: root["install_id"]?.string ?? "",
                kind: root["kind"]?.string ?? "alert", instance: root["instance"]?.string)
        else { throw .failed("\(place): app and install_id are needed") }
        var key = id.text
        let result = key.withUTF8 { key -> Result<RegistrationRecord, RecordError> in
            bytes.withUnsafeBytes { value in
                do throws(RecordError) {
                    return .success(
                        try RegistrationRecord.decode(
                            key: UnsafeRawBufferPointer(key), value: value,
                            // As if it were published now; it may say itself when it was made.
                            timestamp: SystemTime.shared.wall.value, parser: parser))
                } catch {
                    return .failure(error)
                }
            }
        }
        switch result {
        case .success(.registered(let address)): return address
        case .success(.gone): throw .failed("\(place): no device")
        case .failure(let error): throw .failed("\(place): \(error)")
        }
    }

    /// Those that an event for the user goes to, and the others with what is in the way. The index
    /// divides like that before it answers; a file may hold anybody's devices.
    static func divided(
        _ addresses: [DeviceAddress], app: String, userID: String, staleness: StalenessPolicy,
        at now: UnixMillis
    ) -> (reached: [DeviceAddress], notSent: [(addressID: String, obstacle: String)]) {
        var reached: [DeviceAddress] = []
        var notSent: [(addressID: String, obstacle: String)] = []
        for address in addresses {
            let obstacle = obstacle(address, app, userID, staleness, now)
            if let obstacle {
                notSent.append((address.addressID, obstacle))
            } else {
                reached.append(address)
            }
        }
        return (reached, notSent)
    }

    private static func obstacle(
        _ address: DeviceAddress, _ app: String, _ userID: String, _ staleness: StalenessPolicy,
        _ now: UnixMillis
    ) -> String? {
        guard address.app == app else { return "it is a device of the app \(address.app)" }
        guard let owner = address.userID else { return "nobody is logged in on the install" }
        guard owner == userID else { return "it belongs to another user, \(owner)" }
        return staleness.obstacle(address, at: now)
    }

    /// The record of `push.users` in a file, which must be the user's.
    static func readUser(
        _ path: String, app: String, userID wanted: String
    ) throws(Failure) -> UserRecord {
        let file = try EventFile(path)
        let parser = JSONParser()
        guard let root = try? parser.parse(file.bytes), root.isObject else {
            throw .failed("\(file.name): no JSON object")
        }
        let userID = root["user_id"]?.string ?? root["user_id"]?.int64.map { String($0) }
        guard root["app"]?.string == app, userID == wanted else {
            throw .failed(
                "\(file.name): the record is of user \((userID ?? "none").printable) of the app "
                    + "\((root["app"]?.string ?? "none").printable); the event is for user "
                    + "\(wanted.printable) of \(app.printable)")
        }
        let key = Array("\(app)/\(wanted)".utf8)
        let result = key.withUnsafeBytes { key -> Result<UserRecord?, RecordError> in
            file.bytes.withUnsafeBytes { value in
                do throws(RecordError) {
                    return .success(
                        try UserChange.decode(key: key, value: value, parser: parser).record)
                } catch {
                    return .failure(error)
                }
            }
        }
        switch result {
        case .success(let record): return record ?? UserRecord()
        case .failure(let error): throw .failed("\(file.name): \(error)")
        }
    }

    /// The addresses that the index has for a user, and what the user said for all of them.
    static func ask(
        _ configuration: Configuration, app: String, userID: String
    ) throws(Failure) -> (addresses: [DeviceAddress], user: UserRecord?) {
        let store = try IndexStore(configuration, log: .silent)
        guard store.isShared else {
            throw .failed(
                "index.store is memory, which only the process itself can see; give --device FILE")
        }
        let loop: EventLoop
        do throws(SystemError) {
            loop = try EventLoop(name: "look-up")
        } catch {
            throw .failed("\(error)")
        }
        let reader = store.reader(
            on: loop, addressesPerUser: configuration.limits.addressesPerUser)
        defer { reader.stop() }
        return try LookUp(reader, on: loop).ask(app: app, userID: userID)
    }
}

/// One look-up, waited for.
private final class LookUp: TokenIndexDelegate {
    private let index: any TokenIndex
    private let loop: EventLoop
    private var result: LookUpResult?

    /// How long an answer may take.
    private static let patience = TimeSpan.seconds(5)

    init(_ index: any TokenIndex, on loop: EventLoop) {
        self.index = index
        self.loop = loop
        index.delegate = self
    }

    func ask(
        app: String, userID: String
    ) throws(Failure) -> (addresses: [DeviceAddress], user: UserRecord?) {
        index.lookUp(app: app, userID: userID, tag: 0)
        let deadline = loop.now + Self.patience
        while result == nil, loop.now < deadline { loop.turn(waitingUpTo: .milliseconds(50)) }
        switch result {
        case .addresses(let addresses, _, _, let user): return (addresses, user)
        case .unavailable(let fault): throw .failed("\(fault)")
        case nil: throw .failed("\(index.readiness); --device FILE needs no index")
        }
    }

    func lookUpFinished(tag: UInt64, _ result: LookUpResult) { self.result = result }

    func indexReadinessChanged() {}
}
