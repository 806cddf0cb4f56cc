import Base
import Testing

@testable import EventLoop

/// The way out: which proxy, which addresses, and what a proxy's answer says.
@Suite struct `The way out` {
    private func address(_ text: String) throws -> SocketAddress {
        try #require(SocketAddress(literal: text, port: 443))
    }

    @Test func `a family comes first or alone`() throws {
        let found = try ["2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2"].map(address)
        func order(_ choice: Egress.AddressChoice) -> [String] { choice.order(found).map(\.text) }
        let six = ["2001:db8:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:2"]
        let four = ["192.0.2.1", "192.0.2.2"]
        #expect(order(.auto) == [six[0], four[0], six[1], four[1]])
        #expect(order(.ipv4) == four + six)
        #expect(order(.ipv6) == six + four)
        #expect(order(.onlyIPv4) == four)
        #expect(order(.onlyIPv6) == six)
    }

    @Test func `a host without an address of the family that is asked for is named`() throws {
        let loop = try EventLoop(name: "test")
        final class Outcome { var error: DialError? }
        let outcome = Outcome()
        Dialer.dial(
            host: "127.0.0.1", port: 1, egress: Egress(addresses: .onlyIPv6), on: loop,
            deadline: loop.now + .seconds(20)
        ) {
            if case .failure(let error) = $0 { outcome.error = error }
        }
        while outcome.error == nil { loop.turn(waitingUpTo: .seconds(1)) }
        #expect(outcome.error?.description.contains("no address of IPv6") == true)
    }

    @Test func `exceptions are whole names, or all below one`() {
        let egress = Egress(
            proxy: Egress.Proxy(
                host: "proxy", port: 3128, bypass: ["one.example.net", ".example.org"]))
        for host in ["one.example.net", "ONE.example.net", "a.example.org", "b.a.example.org"] {
            #expect(egress.proxy(for: host) == nil, "\(host)")
        }
        for host in ["two.example.net", "example.org", "anexample.org", "one.example.net.evil"] {
            #expect(egress.proxy(for: host) != nil, "\(host)")
        }
        #expect(Egress.direct.proxy(for: "one.example.net") == nil)
    }

    @Test func `an answer is read however it is cut`() {
        let whole = Array("HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n".utf8)
        for cut in 1..<whole.count {
            var answer = ConnectAnswer()
            #expect(Array(whole[..<cut]).withUnsafeBytes { answer.take($0) } == .incomplete)
            #expect(Array(whole[cut...]).withUnsafeBytes { answer.take($0) } == .open)
        }
    }

    @Test func `garbage is no tunnel and no crash`() {
        let seed = UInt64.random(in: 0...UInt64.max)
        var random = SeededRandom(seed: seed)
        let parts = [
            "HTTP/1.1 ", "HTTP/1.", "200", " ", "\r\n", "\r\n\r\n", "\n", "\u{0}", "407", "x",
        ]
        for _ in 0..<20_000 {
            var answer = ConnectAnswer()
            var text = ""
            for _ in 0..<Int.random(in: 1...8, using: &random) {
                text += parts.randomElement(using: &random) ?? ""
            }
            let outcome = Array(text.utf8).withUnsafeBytes { answer.take($0) }
            if outcome == .open {
                #expect(
                    text.hasPrefix("HTTP/1.") && text.hasSuffix("\r\n\r\n"), "seed \(seed): \(text)"
                )
            }
        }
        var endless = ConnectAnswer()
        var outcome = ConnectAnswer.Outcome.incomplete
        let line = Array("HTTP/1.1 200 OK\r\n".utf8) + [UInt8](repeating: 0x61, count: 9_000)
        outcome = line.withUnsafeBytes { endless.take($0) }
        #expect(outcome == .malformed("its answer has no end"))
    }
}
