// When quiet hours are over, by the clock on the wall of whoever sleeps.

import Base
import Testing

@testable import Routes

private func time(_ text: String) throws -> UnixMillis {
    try #require(RFC3339.parse(text))
}

@Suite struct `Quiet hours` {
    private let clocks = WallClocks()

    private func end(
        _ from: String, _ to: String, in zone: String, at now: String
    ) throws -> String? {
        let hours = try #require(QuietHours(from: from, to: to))
        return clocks.end(of: hours, in: zone, at: try time(now)).map {
            RFC3339.text($0).replacing(".000Z", with: "Z")
        }
    }

    @Test func `are read as two times of a day`() {
        #expect(QuietHours(from: "22:00", to: "07:30")?.text == "22:00-07:30")
        #expect(QuietHours(from: "22:00", to: "07:30")?.minutes == 9 * 60 + 30)
        #expect(QuietHours(from: "00:00", to: "23:59")?.minutes == 1_439)
        for (from, to) in [
            ("24:00", "07:00"), ("22:60", "07:00"), ("7:00", "08:00"), ("22:00", "22:00"),
            ("", "07:00"), ("22.00", "07:00"), ("٢٢:٠٠", "07:00"), ("-1:00", "07:00"),
        ] { #expect(QuietHours(from: from, to: to) == nil, "\(from) \(to)") }
    }

    @Test func `end at the person's time, also after midnight`() throws {
        let vienna = "Europe/Vienna"
        #expect(try end("22:00", "07:00", in: vienna, at: "2026-01-10T20:59:59Z") == nil)
        #expect(
            try end("22:00", "07:00", in: vienna, at: "2026-01-10T21:00:00Z")
                == "2026-01-11T06:00:00Z")
        #expect(
            try end("22:00", "07:00", in: vienna, at: "2026-01-11T05:59:59.999Z")
                == "2026-01-11T06:00:00Z")
        #expect(try end("22:00", "07:00", in: vienna, at: "2026-01-11T06:00:00Z") == nil)
        #expect(
            try end("22:00", "07:00", in: vienna, at: "2026-07-10T20:30:00Z")
                == "2026-07-11T05:00:00Z")
        #expect(
            try end("12:00", "14:00", in: "Asia/Kathmandu", at: "2026-01-10T07:00:00Z")
                == "2026-01-10T08:15:00Z")
        #expect(
            try end("22:00", "07:00", in: "America/Los_Angeles", at: "2026-01-10T08:00:00Z")
                == "2026-01-10T15:00:00Z")
    }

    @Test func `of an unknown zone go by UTC`() throws {
        #expect(!clocks.isKnown("Mars/Olympus") && clocks.isKnown("Europe/Vienna"))
        #expect(!clocks.isKnown(""))
        #expect(
            try end("22:00", "07:00", in: "Mars/Olympus", at: "2026-01-10T23:00:00Z")
                == "2026-01-11T07:00:00Z")
    }

    @Test func `last an hour longer or shorter when clocks are turned`() throws {
        // Forward on 2026-03-29 at 01:00 UTC, back on 2026-10-25 at 01:00 UTC.
        #expect(
            try end("22:00", "07:00", in: "Europe/Vienna", at: "2026-03-28T22:00:00Z")
                == "2026-03-29T05:00:00Z")
        #expect(
            try end("22:00", "07:00", in: "Europe/Vienna", at: "2026-10-24T22:00:00Z")
                == "2026-10-25T06:00:00Z")
    }

    @Test func `that would end in the hour that is left out end when the clock jumps`() throws {
        #expect(
            try end("22:00", "02:30", in: "Europe/Vienna", at: "2026-03-28T22:00:00Z")
                == "2026-03-29T01:00:00Z")
        // Those that would begin in it begin then.
        #expect(try end("02:30", "06:00", in: "Europe/Vienna", at: "2026-03-29T00:59:59Z") == nil)
        #expect(
            try end("02:30", "06:00", in: "Europe/Vienna", at: "2026-03-29T01:00:00Z")
                == "2026-03-29T04:00:00Z")
    }

    @Test func `end in the second round of the hour that comes twice`() throws {
        for now in [
            "2026-10-24T22:00:00Z", "2026-10-25T00:10:00Z", "2026-10-25T00:45:00Z",
            "2026-10-25T01:10:00Z", "2026-10-25T01:29:59Z",
        ] {
            #expect(
                try end("22:00", "02:30", in: "Europe/Vienna", at: now) == "2026-10-25T01:30:00Z",
                "\(now)")
        }
        #expect(try end("22:00", "02:30", in: "Europe/Vienna", at: "2026-10-25T01:30:00Z") == nil)
    }

    @Test func `that begin in the hour that comes twice do not pause in its second round`() throws {
        for now in ["2026-10-25T00:30:00Z", "2026-10-25T01:10:00Z", "2026-10-25T01:40:00Z"] {
            #expect(
                try end("02:30", "07:00", in: "Europe/Vienna", at: now) == "2026-10-25T06:00:00Z",
                "\(now)")
        }
        #expect(try end("02:30", "07:00", in: "Europe/Vienna", at: "2026-10-25T00:29:59Z") == nil)
    }

    @Test func `survive a day that is left out`() throws {
        // Samoa had no 30 December 2011: from -10:00 to +14:00 at 10:00 UTC.
        #expect(
            try end("22:00", "07:00", in: "Pacific/Apia", at: "2011-12-30T09:00:00Z")
                == "2011-12-30T17:00:00Z")
    }

    /// Against the definition, minute by minute, over the days around turned clocks.
    @Test(arguments: 0..<24 as Range<UInt64>)
    func `end at the first minute that is not quiet`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let zones = [
            "Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "America/St_Johns",
            "Africa/Casablanca", "Asia/Tehran", "America/Sao_Paulo", "Pacific/Auckland", "UTC",
        ]
        let zone = zones[Int.random(in: 0..<zones.count, using: &random)]
        let from = Int.random(in: 0..<1_440, using: &random)
        let length = Int.random(in: 180...1_080, using: &random)
        let hours = try #require(QuietHours(from: from, to: (from + length) % 1_440))
        let start = try time("2026-01-01T00:00:00Z")
        let clock = clocks.clock(of: zone)
        var now = start
        let limit = start + .hours(24 * 366)
        while now < limit {
            if let end = clock.end(of: hours, at: now) {
                let about = "\(zone) \(hours.text) \(RFC3339.text(now)) \(RFC3339.text(end))"
                #expect(end > now && end - now <= .hours(21), "\(about)")
                #expect(clock.end(of: hours, at: end) == nil, "\(about)")
                let middle = now + (end - now) / 2
                #expect(clock.end(of: hours, at: middle) == end, "\(about)")
                #expect(clock.end(of: hours, at: end - .milliseconds(1)) == end, "\(about)")
            }
            now = now + .minutes(Int64.random(in: 7...97, using: &random))
        }
    }
}
