import JSON
import Routes
import Testing

@Suite struct `Routes that encrypt` {
    @Test func `a general text is needed, and only there`() throws {
        #expect(
            try faults("  t: {title: x, ttl: 1h, encrypt: true}\n").map {
                $0.hasSuffix(
                    "encrypt: needs fallback: the general text that is shown until the app has"
                        + " decrypted the true one")
            } == [true])
        #expect(
            try faults("  t: {title: x, ttl: 1h, encrypt: true, fallback: {title: g}}\n") == [])
        #expect(try faults("  t: {title: x, fallback: {title: g}}\n").count == 1)
        #expect(try faults("  t: {kind: silent, encrypt: true, data: {a: 1}}\n") == [])
        #expect(try faults("  t: {kind: call, encrypt: true, data: {a: 1}}\n") == [])
    }

    @Test func `what cannot be encrypted is said`() throws {
        #expect(
            try faults("  t: {kind: hint, encrypt: true}\n").map {
                $0.hasSuffix("encrypt: a hint push has nothing that can be encrypted")
            } == [true])
        #expect(try faults("  t: {kind: raw, encrypt: true, data: {a: 1}}\n").count == 1)
        let override = try faults(
            """
              t:
                title: x
                encrypt: true
                fallback: {title: g}
                apns: {aps: {alert: {subtitle: "{{payload.secret}}"}}}
                fcm: {android: {direct_boot_ok: true}}

            """)
        #expect(
            override.map {
                $0.hasSuffix(
                    "apns: goes out in clear, and so it must not hold fields of the event with"
                        + " encrypt")
            } == [true])
    }

    @Test func `the general text stands beside the true one`() throws {
        let table = try table(
            """
              t:
                title: "{{payload.a}}"
                encrypt: true
                fallback: {title: News, body: "{{payload.b|}}"}
                translations: {de: {fallback: {title: Neues}}}

            """)
        let sample = try Sample(payload: #"{"a":"secret"}"#)
        let text = try sample.render(table, locale: "de-AT")
        let root = try JSONParser().parse(text)
        #expect(root["fallback"]?["title"]?.string == "Neues")
        #expect(root["fallback"]?.count == 1)
        #expect(root["notification"]?["title"]?.string == "secret")
        #expect(table.routes[0].androidDisplay == .app)
    }

    @Test func `nothing general to show is an error and no silent push`() throws {
        let table = try table(
            "  t: {title: x, encrypt: true, fallback: {title: '{{payload.general|}}'}}\n")
        #expect(
            try Sample().refusal(table)
                == "fallback has neither a title nor a body for this reader")
    }

    @Test func `only what stays in clear is doubtful`() throws {
        let text = """
              t:
                ttl: 1h
                apps: [shop]
                title: "{{payload.iban}}"
                data: {iban: "{{payload.iban}}"}
                sensitive: [payload.iban, payload.name]
                fallback: {title: "{{payload.name}}"}
                encrypt: true

            """
        let configuration = try configuration(text)
        let lints = try RouteTable.compile(configuration).lints(configuration).map(\.message)
        #expect(
            lints == [
                "payload.name is sensitive and goes out in clear; use a pointer to it, or encrypt"
            ])
    }
}
