import Base
import Config
import Crypto
import Glibc
import Telemetry
import Testing

@testable import Bugle

@Suite struct `The watch over certificates` {
    private let sink = CollectingSink()
    private let time = ManualTime(wall: UnixMillis(1_735_689_600_000))

    /// The levels and messages of what was told.
    private func told() -> [String] {
        sink.lines.map { line in
            let level =
                line.contains(#""level":"error""#)
                ? "error" : line.contains(#""level":"warning""#) ? "warning" : "info"
            let start = line.firstRange(of: #""msg":""#)?.upperBound ?? line.startIndex
            return "\(level): \(line[start...].prefix { $0 != "\"" && $0 != ":" })"
        }
    }

    @Test func `has one line for each thing that happens to one`() {
        var left: TimeSpan? = .hours(24 * 20)
        let watch = CertificateWatch(
            [("apps.shop.apns.cert_file", "/etc/bugle/apns.pem")],
            log: Log(level: .info, format: .json, sink: sink, time: time)
        ) { _ in left }
        /// So many looks of a minute each.
        func look(_ minutes: Int) {
            for _ in 0..<minutes {
                // Asked twice a second it looks once a minute.
                for _ in 0..<120 {
                    watch.poll(at: time.monotonic)
                    time.advance(by: .milliseconds(500))
                }
            }
        }
        look(30)
        #expect(told() == [])
        left = .hours(24 * 13)
        look(60)
        #expect(told() == ["warning: a certificate ends soon"])
        #expect(sink.lines[0].contains(#""days_left":13"#))
        #expect(sink.lines[0].contains("apps.shop.apns.cert_file"))
        left = .seconds(-60)
        look(30)
        #expect(told().dropFirst() == ["error: a certificate has ended"])
        left = .hours(24 * 365)
        look(30)
        #expect(told().dropFirst(2) == ["info: a certificate was renewed"])
        left = nil
        look(30)
        #expect(told().dropFirst(3) == ["error: a certificate cannot be read"])
    }

    @Test func `reminds once a day of one that ends soon`() {
        let watch = CertificateWatch(
            [("redis.tls.ca_file", "ca.pem")],
            log: Log(level: .info, format: .json, sink: sink, time: time)
        ) { _ in .hours(48) }
        for _ in 0..<(3 * 24 * 60) {
            watch.poll(at: time.monotonic)
            time.advance(by: .minutes(1))
        }
        #expect(told() == Array(repeating: "warning: a certificate ends soon", count: 3))
    }

    @Test func `reads real files`() throws {
        let path = "/tmp/bugle-watch-\(getpid()).pem"
        let file = try #require(fopen(path, "w"))
        fputs(try CertificateAuthority().certificatePEM, file)
        fclose(file)
        defer { unlink(path) }
        let watch = CertificateWatch(
            [("a", path), ("b", "/nonexistent")],
            log: Log(level: .info, format: .json, sink: sink, time: time))
        watch.poll(at: time.monotonic)
        #expect(told() == ["error: a certificate cannot be read"])
        #expect(sink.lines[0].contains(#""setting":"b""#))
    }
}

@Suite struct `The metric of certificates` {
    @Test func `says whose each one is`() throws {
        let configuration = try Configuration.parse(
            text: """
                kafka:
                  brokers: localhost:9
                  properties: {ssl.ca.location: kafka.pem}
                redis: {tls: {ca_file: redis.pem}}
                egress: {ca_file: proxy.pem}
                apps:
                  shop:
                    fcm: {service_account: "${SA}", ca_file: fcm.pem}
                  bank:
                    expo: {ca_file: expo.pem}
                """, environment: ["SA": "{}"])
        let registry = MetricsRegistry()
        configuration.registerCertificates(in: registry)
        let told = registry.readings(of: "bugle_certificate_seconds_left").map {
            "\($0.label("setting")): \($0.label("gateway")) of \($0.label("app"))"
        }
        #expect(
            Set(told) == [
                "redis.tls.ca_file: none of none", "egress.ca_file: none of none",
                "kafka.properties.ssl.ca.location: none of none",
                "apps.shop.fcm.ca_file: fcm of shop", "apps.bank.expo.ca_file: expo of bank",
            ])
        // None of them is there.
        #expect(registry.sum(of: "bugle_certificate_seconds_left") == 0)
    }
}
