// Apple's devices behind FCM, through the whole pipeline: what FCM hands on to APNs, and what it
// tells of APNs' answer.

import Base
import JSON
import Simulator
import Testing

@testable import Pipeline

@Suite(.serialized) struct `Apple devices through FCM` {
    private func world(
        _ faults: [FaultRule] = [], routes text: String = ""
    ) throws -> (Simulator, World) {
        var options = SimulatorOptions()
        options.journal = .full(bodies: true)
        options.faults = FaultPlan(rules: faults)
        let simulator = try Simulator(options)
        let world = try World(simulator)
        if !text.isEmpty { world.settings.routes = try routes(text) }
        return (simulator, world)
    }

    @Test func `get alerts, silent pushes and calls with the priority that APNs allows`() throws {
        let (simulator, world) = try world(
            routes: """
                  alert: {title: x}
                  silent: {kind: silent, data: {a: 1}}
                  call: {kind: call, data: {a: 1}}

                """)
        try world.register("phone", user: "u1", gateway: .fcm, platform: "ios")
        try world.start()
        for type in ["alert", "silent", "call"] {
            try world.publish(#"{"id":"\#(type)","type":"\#(type)","user_id":"u1"}"#, key: "u1")
        }
        // A topic's devices are of every kind.
        try world.publish(#"{"id":"all","type":"call","to":{"fcm_topic":"news"}}"#, key: nil)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 4)
        for result in results {
            #expect(result.text("outcome") == "accepted", "\(result.value ?? "")")
        }
        let parser = JSONParser()
        var priorities: [String: String] = [:]
        for entry in simulator.journal.entries where entry.service == .fcm {
            let message = try #require(try parser.parse(entry.body)["message"])
            let headers = try #require(message["apns"]?["headers"])
            let isTopic = message["topic"] != nil
            #expect((message["android"] != nil) == isTopic)
            if isTopic { #expect(message["android"]?["priority"]?.string == "HIGH") }
            let result = try #require(
                results.first { $0.text("message_id") == entry.messageID })
            priorities[result.text("event_id") ?? ""] = headers["apns-priority"]?.string
        }
        #expect(priorities == ["alert": "10", "silent": "5", "call": "5", "all": "5"])
        #expect(simulator.journal.counters.violations.isEmpty)
        #expect(world.stop())
    }

    private static func refusal(
        _ status: Int, _ code: String, apns: Int, _ reason: String
    ) -> FaultAnswer {
        let type = "type.googleapis.com/google.firebase.fcm.v1."
        return FaultAnswer(
            status: status,
            body: #"{"error":{"code":\#(status),"status":"X","message":"m","details":["#
                + #"{"@type":"\#(type)FcmError","errorCode":"\#(code)"},"#
                + #"{"@type":"\#(type)ApnsError","statusCode":\#(apns),"reason":"\#(reason)"}]}}"#)
    }

    @Test func `end with APNs' word on their token, and not with its word on a key`() throws {
        func rule(_ install: String, _ answer: FaultAnswer) -> FaultRule {
            FaultRule(
                install, FaultMatch(.fcm, tokenPrefix: World.token(of: install, gateway: .fcm)),
                .answer(answer))
        }
        let (_, world) = try world([
            rule("gone", Self.refusal(400, "INVALID_ARGUMENT", apns: 410, "Unregistered")),
            rule(
                "badkey",
                Self.refusal(
                    401, "THIRD_PARTY_AUTH_ERROR", apns: 403, "InvalidProviderToken")),
        ])
        for install in ["gone", "badkey", "fine"] {
            try world.register(install, user: "u1", gateway: .fcm, platform: "ios")
        }
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 3)
        let outcomes = Dictionary(
            results.map { ($0.text("install_id") ?? "", $0.text("outcome") ?? "") },
            uniquingKeysWith: { $1 })
        #expect(
            outcomes == ["gone": "token_invalid", "badkey": "credential_error", "fine": "accepted"])
        #expect(world.stop())
        let invalidations = try world.records(of: "push.invalidations", atLeast: 1)
        #expect(invalidations.map { $0.text("install_id") } == ["gone"])
        #expect(invalidations.first?.text("reason") == "Unregistered")
    }
}
