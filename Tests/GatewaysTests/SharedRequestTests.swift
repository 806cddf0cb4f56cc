import Base
import Gateways
import JSON
import Testing

@Suite struct `Requests of one event` {
    private func fields(_ built: Built) -> [String] {
        built.request.fields.map { field in
            let value = String(decoding: built.request.value(of: field), as: UTF8.self)
            return "\(field.name) \(field.indexing): \(value)"
        }
    }

    private func id(_ number: Int) -> UUIDBytes {
        UUIDBytes(high: 0x3333_3333_3333_5333, low: 0x9333_3333_0000_0000 + UInt64(number))
    }

    /// Addresses that differ in everything a request is made of.
    private let addresses: [Address] = (0..<24).map { number in
        let digits = String(repeating: "0123456789abcdef"[number % 16], count: 64)
        return apnsTarget(
            Array(digits.utf8), environment: number % 5 == 0 ? .sandbox : .production,
            topic: number % 7 == 0 ? "com.example.other" : nil,
            kind: number % 6 == 5 ? .complication : number % 11 == 10 ? .mdm : .alert)
    }

    @Test(arguments: [
        #"{"notification":{"title":"x"},"data":{"a":1,"bugle":2}}"#,
        #"{"data":{"a":{"b":[1,2]}},"collapse_key":"k"}"#,
        #"{"notification":{"title":"x"},"apns":{"aps":{"badge":9}}}"#,
    ])
    func `what they share changes none of them`(json: String) throws {
        let event = try Event(json)
        let shared = SharedRequest()
        let renderer = APNsRenderer(APNsSettings(topic: "com.example.app"))
        for round in 0..<2 {
            // Another event's request must not come out of what this one left.
            shared.forget()
            for (number, address) in addresses.enumerated() {
                event.content.messageID = id(round * 100 + number)
                event.content.shared = nil
                let alone = Built(apns: event.content, to: address)
                event.content.shared = shared
                let together = Built(apns: event.content, to: address, with: renderer)
                #expect(together.rendering == alone.rendering)
                #expect(fields(together) == fields(alone))
                #expect(together.body == alone.body)
            }
        }
    }

    @Test func `a new credential and a damaged token are seen behind a shared request`() throws {
        let event = try Event(#"{"notification":{"title":"x"}}"#)
        event.content.shared = SharedRequest()
        let renderer = APNsRenderer(APNsSettings(topic: "com.example.app"))
        #expect(Built(apns: event.content, with: renderer)["authorization"] == "bearer a.b.c")
        let next = ProviderToken(
            header: Array("bearer d.e.f".utf8), generation: 2, mintedAt: MonotonicTime(nanos: 1))
        let renewed = Built(apns: event.content, with: renderer, authorization: next)
        #expect(renewed["authorization"] == "bearer d.e.f")
        let damaged = Built(
            apns: event.content, to: apnsTarget(Array("xyz0".utf8)), with: renderer,
            authorization: next)
        #expect(damaged.isMalformedToken)
        event.content.now = at(7200)
        #expect(
            Built(apns: event.content, with: renderer, authorization: next).rendering == .expired)
    }
}

extension String {
    fileprivate subscript(index: Int) -> String {
        String(self[self.index(startIndex, offsetBy: index)])
    }
}
