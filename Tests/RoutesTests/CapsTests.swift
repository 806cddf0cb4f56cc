// How often somebody is served, as the configuration says it.

import Base
import Config
import Testing

@testable import Routes

@Suite struct `The section caps` {
    private func caps(_ text: String) throws -> Caps { try table("", more: text).caps }

    @Test func `has only Apple's silent pushes when nothing is said`() throws {
        #expect(try caps("") == .standard)
        #expect(Caps.standard.silent == Cap(3, in: .hours(1)))
        #expect(!Caps.standard.countsEvents && Caps.standard.quota(of: "any") == nil)
        #expect(try caps("caps: {silent: none}").silent == nil)
    }

    @Test func `is read whole`() throws {
        let caps = try caps(
            """
            caps:
              silent: 2/30m
              user: 20/1d
              preferences: {offers: 2/1d, news: none}
              sources:
                billing: {rate: 100/1s, day: 50000}
                "*": {day: 1000}
            """)
        #expect(caps.silent == Cap(2, in: .minutes(30)) && caps.user == Cap(20, in: .hours(24)))
        #expect(caps.preferences == ["offers": Cap(2, in: .hours(24))])
        #expect(caps.quota(of: "billing")?.rate == Cap(100, in: .seconds(1)))
        #expect(caps.quota(of: "billing")?.day == Cap(50_000, in: .hours(24)))
        #expect(caps.quota(of: "orders") == caps.otherSources)
        #expect(caps.otherSources?.day == Cap(1_000, in: .hours(24)) && caps.countsEvents)
    }

    @Test func `tells every mistake with line and key`() throws {
        let found = try faults(
            "",
            more: """
                caps:
                  silent: 0/1h
                  user: 5
                  preferences: {a: 1/1ms, b: 1001/1h, c: 1/1h/1h, d: "-1/1h", e: 1/8d}
                  sources:
                    s: {}
                    t: {rate: 5/2d}
                    u: {day: 0}
                    v: {daily: 5}
                    w: 7
                  users: 3/1h
                """)
        for text in [
            "bugle.yaml:12: caps.silent: expected none, or 1 to 1000 in 1s to 7d, such as 3/1h",
            "bugle.yaml:13: caps.user: expected none, or",
            "bugle.yaml:14: caps.preferences.a: expected", "bugle.yaml:14: caps.preferences.b: ",
            "bugle.yaml:14: caps.preferences.c: expected", "bugle.yaml:14: caps.preferences.d: ",
            "bugle.yaml:14: caps.preferences.e: expected",
            "bugle.yaml:16: caps.sources.s: give rate, day or both",
            "bugle.yaml:17: caps.sources.t.rate: expected none, or 1 to 1000000000 in 1s to 1d",
            "bugle.yaml:18: caps.sources.u.day: expected a whole number from 1",
            "bugle.yaml:19: caps.sources.v.daily: unknown key",
            "bugle.yaml:20: caps.sources.w: expected a mapping",
            "bugle.yaml:21: caps.users: unknown key; did you mean \"user\"?",
        ] {
            #expect(found.contains { $0.hasPrefix(text) }, "\(text) in \(found)")
        }
    }

    @Test func `lints tell of caps that nothing counts for`() throws {
        let configuration = try configuration(
            "  a: {kind: silent}\n", more: "caps: {user: 5/1d, preferences: {offers: 1/1d}}")
        let lints = try RouteTable.compile(configuration).lints(configuration).map(\.description)
        #expect(
            lints == [
                "bugle.yaml:1: caps.preferences.offers: no route has this preference",
                "bugle.yaml:1: caps.user: counts events of routes with a preference, and there is none",
            ])
    }
}
