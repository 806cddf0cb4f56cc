// Two users, one phone: whatever happens in which order and with which pauses, no push of the
// former owner starts later than a second after the index knew.

import Base
import Crypto
import Gateways
import Simulator
import Testing
import TokenIndex

@testable import Pipeline

private enum Step: String, CaseIterable {
    /// u1 logs in on the phone.
    case login1
    /// u2 logs in on the phone: the same install.
    case login2
    /// u2 logs in after a reinstall: another install, the same token.
    case reinstall2
    /// Whoever is logged in logs out.
    case logout
    /// The install's address goes away.
    case gone
    /// An event for u1.
    case event
    /// The request gets its stream; the gateway asks to try again.
    case write
    /// The retry is due.
    case retry
}

extension Step {
    /// Whether u1 is not the owner behind it.
    fileprivate var takesPhone: Bool {
        switch self {
        case .login2, .reinstall2, .logout, .gone: true
        case .login1, .event, .write, .retry: false
        }
    }
}

private struct Story {
    var steps: [Step]
    var testDescription: String { steps.map(\.rawValue).joined(separator: " ") }

    /// Every way to tell the phone's story and the event's at once, each in its own order.
    static let all: [Story] = {
        let phones: [[Step]] = [
            [.login2], [.logout], [.gone], [.reinstall2], [.logout, .login2], [.login2, .logout],
            [.logout, .login1], [.login2, .login1], [.gone, .reinstall2],
        ]
        return phones.flatMap { merges($0[...], [.event, .write, .retry][...]) }
            .map { Story(steps: $0) }
    }()

    private static func merges(
        _ left: ArraySlice<Step>, _ right: ArraySlice<Step>
    ) -> [[Step]] {
        guard let first = left.first else { return [Array(right)] }
        guard let other = right.first else { return [Array(left)] }
        return merges(left.dropFirst(), right).map { [first] + $0 }
            + merges(left, right.dropFirst()).map { [other] + $0 }
    }
}

@Suite struct `Two users, one phone` {
    @Test func `nobody gets the former owner's push, however things interleave`() throws {
        let gateway = try ScriptedGateway(streamLimit: 1) { token, attempt in
            if token.hasPrefix(Phone.blocking) { return .hold }
            return attempt == 1 ? .answer(503, #"{"reason":"Shutdown"}"#) : .answer(200, "")
        }
        let world = try OneLane(gateway) { $0.streamPatience = .seconds(60) }
        var plays = 0
        var pushes = 0
        for story in Story.all {
            // Each pause is none, or longer than a look-up may be old.
            for pauses in 0..<(1 << story.steps.count) {
                plays += 1
                pushes += try Phone(plays).play(story, pauses, world)
            }
        }
        #expect(plays == 1_856)
        // Many do go out: to the owner, and within the second.
        #expect(pushes > plays / 4)
    }
}

/// One play: a phone with users of its own.
private struct Phone {
    static let blocking = "b10c"
    let token: String
    let blocker: String
    let number: Int

    init(_ number: Int) {
        self.number = number
        token = "a" + SHA256Digest(of: "phone \(number)").hex.dropFirst()
        blocker = Self.blocking + SHA256Digest(of: "blocker \(number)").hex.dropFirst(4)
    }

    /// Returns how often the phone was pushed to.
    func play(_ story: Story, _ pauses: Int, _ world: OneLane) throws -> Int {
        let (first, second) = ("u1-\(number)", "u2-\(number)")
        let (phone, new) = ("phone-\(number)", "new-\(number)")
        let gateway = world.gateway
        let before = gateway.seen.count
        try world.register("blocker-\(number)", user: "b-\(number)", token: blocker)
        try world.register(phone, user: first, token: token)
        try world.publish(id: "blocker", user: "b-\(number)")
        try world.turn { gateway.seen.count == before + 1 }
        var isOwner = true
        var lostAt = world.time.monotonic
        var held = 1
        var written = before + 1
        func look(after step: String) throws {
            try world.settle(held: held)
            let seen = gateway.seen.count
            if seen > written, !isOwner {
                let late = world.time.monotonic - lostAt
                #expect(
                    late <= .seconds(1),
                    "\(story.testDescription), pauses \(pauses): a push after \(step)")
            }
            written = seen
        }
        for (index, step) in story.steps.enumerated() {
            switch step {
            case .login1: try world.register(phone, user: first, token: token)
            case .login2: try world.register(phone, user: second, token: token)
            case .reinstall2: try world.register(new, user: second, token: token)
            case .logout: try world.register(phone, user: nil, token: token)
            case .gone: try world.register(phone, user: nil, token: nil)
            case .event: try world.publish(id: "e", user: first)
            case .write:
                gateway.release()
                held = 0
            case .retry: world.time.advance(by: .milliseconds(450))
            }
            if step.takesPhone {
                if isOwner { lostAt = world.time.monotonic }
                isOwner = false
            } else if step == .login1 {
                isOwner = true
            }
            try look(after: step.rawValue)
            if pauses >> index & 1 == 1 {
                world.time.advance(by: .milliseconds(1_100))
                try look(after: "a pause behind \(step.rawValue)")
            }
        }
        world.time.advance(by: .milliseconds(1_100))
        try look(after: "the end")
        return written - before - 1
    }
}

@Suite struct `The age of a look-up` {
    @Test func `is at most a second when a request is written, and so at every retry`() throws {
        let token = SHA256Digest(of: "t").hex
        let gateway = try ScriptedGateway { _, attempt in
            attempt < 3 ? .answer(503, #"{"reason":"Shutdown"}"#) : .answer(200, "")
        }
        let world = try OneLane(gateway)
        try world.register("phone", user: "u1", token: token)
        let event = try world.publish(id: "e", user: "u1")
        try world.turn { gateway.seen.count == 1 }
        try world.settle(held: 0)
        let first = try #require(event.targets.first)
        #expect(first.lookedUpAt == world.time.monotonic)
        world.time.advance(by: .milliseconds(1_001))
        try world.turn { gateway.seen.count == 2 }
        try world.settle(held: 0)
        #expect(first.lookedUpAt == world.time.monotonic, "looked up again for the retry")
        try world.register("phone", user: "u2", token: token)
        world.time.advance(by: .milliseconds(1_001))
        try world.turn { first.settlement != nil }
        #expect(first.settlement?.outcome == .suppressed)
        #expect(first.settlement?.reason == .superseded)
        #expect(gateway.seen.count == 2)
    }
}

@Suite struct `An install that several gateways reach` {
    private let token = SHA256Digest(of: "t").hex

    @Test func `gets one push, through the first gateway that is configured`() throws {
        for preference in [[Gateway.apns, .fcm], [.fcm, .apns], [.expo]] {
            let gateway = try ScriptedGateway()
            let world = try OneLane(gateway, preference: preference)
            try world.register("phone", user: "u1", token: token)
            try world.register("phone", user: "u1", token: "f", gateway: .fcm, instance: "fcm")
            try world.register("pad", user: "u1", token: SHA256Digest(of: "pad").hex)
            let event = try world.publish(id: "e", user: "u1")
            try world.turn { gateway.seen.count == 2 }
            // FCM is not configured here: preferred or not, it cannot be the one.
            let targets = event.targets.compactMap { $0.address?.addressID }
            #expect(Set(targets) == ["shop/phone", "shop/pad"], "\(preference)")
        }
    }

    @Test(arguments: [[Gateway.apns, .fcm], [.fcm, .apns]])
    func `gets one push, through the gateway that is preferred of two that are configured`(
        preference: [Gateway]
    ) throws {
        let simulator = try Simulator()
        let world = try World(simulator, lanes: 1)
        world.settings.gatewayPreference = preference
        // The other gateway's address is the newer one, so that age would decide differently.
        for (age, gateway) in preference.reversed().enumerated() {
            try world.register(
                "phone", user: "u1", gateway: gateway, instance: gateway.rawValue,
                registeredAt: 1_735_689_600_000 - Int64(age))
        }
        try world.start()
        for event in 0..<3 { try world.publish(id: "e\(event)", user: "u1") }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        let preferred = preference[0].rawValue
        #expect(results.map { $0.text("outcome") } == ["accepted", "accepted", "accepted"])
        #expect(results.map { $0.text("gateway") } == [preferred, preferred, preferred])
        let asked = simulator.journal.entries.map(\.service).filter { $0 != .oauth }
        let service: SimulatedService = preference[0] == .apns ? .apnsProduction : .fcm
        #expect(asked == [service, service, service])
    }

    @Test func `gets the one that is not quarantined`() throws {
        let gateway = try ScriptedGateway()
        let world = try OneLane(gateway)
        let newer = SHA256Digest(of: "newer").hex
        try world.register("phone", user: "u1", token: token)
        try world.register("phone", user: "u1", token: newer, instance: "2")
        let event = try world.publish(id: "e", user: "u1")
        try world.turn { gateway.seen.count == 1 }
        #expect(gateway.seen[0].token == newer, "the newest of one gateway")
        _ = event
        try world.quarantine("phone", instance: "2")
        try world.publish(id: "f", user: "u1")
        try world.turn { gateway.seen.count == 2 }
        #expect(gateway.seen[1].token == token)
        // And when nothing else is left, a result tells of it.
        try world.quarantine("phone", instance: nil)
        let last = try world.publish(id: "g", user: "u1")
        try world.turn { last.targets.first?.settlement != nil }
        #expect(last.targets.map { $0.settlement?.reason } == [.quarantined])
        #expect(last.targets.map { $0.settlement?.outcome } == [.suppressed])
        #expect(gateway.seen.count == 2)
    }
}

extension OneLane {
    /// A tripped fuse holds the address.
    fileprivate func quarantine(_ install: String, instance: String?) throws {
        let id = try #require(
            AddressID(app: "shop", installID: install, kind: "alert", instance: instance))
        let record = InvalidationRecord(
            addressID: id, verdict: .quarantine, reason: "BadDeviceToken", origin: .gateway,
            asOf: time.wall + .seconds(60))
        index.apply(
            .invalidation(record),
            at: TopicPosition(partition: 0, offset: 1, timestamp: time.wall.value))
    }
}
