import Base
import Config
import JSON
import Routes
import Testing

@Suite struct `Matching` {
    private let routes = """
          "*": {title: any}
          chat.*: {title: chat}
          chat.room.*: {title: room}
          chat.room.left: {title: left}

        """

    @Test(arguments: [
        ("chat.room.left", "chat.room.left"), ("chat.room.joined", "chat.room.*"),
        ("chat.room.a.b", "chat.room.*"), ("chat.message", "chat.*"), ("chat", "*"),
        ("chatter.x", "*"), ("order", "*"), (".", "*"), ("chat.", "chat.*"),
    ])
    func `exact beats the longest prefix`(_ type: String, _ name: String) throws {
        #expect(try Sample(type).match(try table(routes))?.name == name)
    }

    @Test func `no route is none, and the nearest is named`() throws {
        let table = try table("  order.shipped: {title: x}\n  chat.*: {title: y}\n")
        #expect(try Sample("order.shiped").match(table) == nil)
        #expect(table.nearestPattern(to: "order.shiped") == "order.shipped")
        #expect(table.nearestPattern(to: "weather") == nil)
        #expect(try Sample("order.shipped", app: "other").match(table) == nil)
    }

    @Test func `among routes of a type the first that fits wins, then the prefixes`() throws {
        let table = try table(
            """
              pay.in:
                - {when: {payload.amount: {above: 100}}, title: big}
                - {when: {payload.amount: {at_most: 100, above: 10}}, apps: [bank], title: bank}
                - {class: marketing, title: ad}
              pay.*: {title: rest}

            """)
        func name(_ amount: Int, _ app: String = "shop", _ eventClass: EventClass = .transactional)
            throws -> String?
        {
            try Sample("pay.in", payload: #"{"amount":\#(amount)}"#, app: app)
                .match(table, of: eventClass)?.name
        }
        #expect(try name(101) == "pay.in")
        #expect(try name(100) == "pay.*")
        #expect(try name(100, "bank") == "pay.in#2")
        #expect(try name(10, "bank") == "pay.*")
        #expect(try name(1, "shop", .marketing) == "pay.in#3")
    }

    @Test(arguments: [
        ("payload.s: paid", #"{"s":"paid"}"#, true), ("payload.s: paid", #"{"s":"Paid"}"#, false),
        ("payload.s: [a, b]", #"{"s":"b"}"#, true), ("payload.s: paid", "{}", false),
        ("payload.s: '5'", #"{"s":5}"#, false), ("payload.s: 5", #"{"s":5.0}"#, true),
        ("payload.s: 5", #"{"s":"5"}"#, false), ("payload.s: true", #"{"s":true}"#, true),
        ("payload.s: true", #"{"s":"true"}"#, false),
        ("payload.s: {not: [a, b]}", #"{"s":"c"}"#, true),
        ("payload.s: {not: a}", #"{"s":"a"}"#, false), ("payload.s: {not: a}", "{}", true),
        ("payload.s: {exists: true}", #"{"s":0}"#, true),
        ("payload.s: {exists: true}", #"{"s":null}"#, false),
        ("payload.s: {exists: false}", "{}", true),
        ("payload.s: {above: 9007199254740992}", #"{"s":9007199254740993}"#, true),
        ("payload.s: {below: 1.5}", #"{"s":1}"#, true),
        ("payload.s: {at_least: 2}", #"{"s":2}"#, true),
        ("payload.s: {above: 2}", #"{"s":"3"}"#, false),
        ("user_id: u1", "{}", true), ("labels.x: a", "{}", false),
    ])
    func `conditions compare like with like`(
        _ condition: String, _ payload: String, _ holds: Bool
    ) throws {
        let table = try table("  t: {when: {\(condition)}, title: x}\n")
        #expect(try (Sample(payload: payload).match(table) != nil) == holds)
    }
}

@Suite struct `The section of routes` {
    @Test func `a configuration without it has none`() throws {
        let text = "kafka: {brokers: b}\napps: {a: {fcm: {service_account: '${K}'}}}\n"
        let plain = try Configuration.parse(text: text, environment: ["K": "k"])
        #expect(try RouteTable.compile(plain).isEmpty)
    }

    @Test func `environment variables are replaced once`() throws {
        let table = try table("  t: {title: '${NAME} $${NAME}'}\n")
        #expect(try Sample().render(table).contains("\"title\":\"Ada ${NAME}\""))
    }

    @Test func `every mistake is told with its line and key`() throws {
        let found = try faults(
            """
              chat*: {title: x}
              a.b:
                titel: x
                kind: alarm
                importance: urgent
                ttl: soon
                apps: [shopp]
                when: {country: AT, payload.n: {over: 1}, payload.m: {}}
                collapse: "{{payload.n:number}}"
                translations:
                  deutsch-: {title: x}
                  de: {title: x, bdy: y}
                actions: [{title: x}]
                addresses: [phone]
              h: {kind: hint, data: {a: b}, title: x}
              c: {kind: call, ttl: 5s}
              r: {kind: raw}
              list: []
              s: text
              p: {title: {one: x}}
              d: {title: x, data: [1]}

            """, more: "content: {locale: '1', time_zone: Mars}")
        for text in [
            "bugle.yaml:11: content.locale: expected a locale such as en or de-AT",
            "bugle.yaml:11: content.time_zone: expected a time zone",
            "bugle.yaml:13: routes.chat*: a star stands alone or behind the last dot",
            "bugle.yaml:15: routes.a.b.titel: unknown key; did you mean \"title\"?",
            "bugle.yaml:16: routes.a.b.kind: expected one of alert, silent, hint, call, raw",
            "bugle.yaml:17: routes.a.b.importance: expected one of passive, normal, high,",
            "bugle.yaml:18: routes.a.b.ttl: expected a time from 0s to 28d",
            "bugle.yaml:19: routes.a.b.apps: expected names out of apps",
            "bugle.yaml:20: routes.a.b.when.country: country: a path starts with one of",
            "bugle.yaml:20: routes.a.b.when.payload.n.over: unknown key",
            "bugle.yaml:20: routes.a.b.when.payload.m: no test",
            "bugle.yaml:21: routes.a.b.collapse: a format that depends on the reader's language",
            "bugle.yaml:23: routes.a.b.translations.deutsch-: expected a locale",
            "bugle.yaml:24: routes.a.b.translations.de.bdy: unknown key; did you mean \"body\"?",
            "bugle.yaml:25: routes.a.b.actions[0].id: missing",
            "bugle.yaml:26: routes.a.b.addresses: expected kinds of addresses",
            "bugle.yaml:27: routes.h.data: a hint carries only the event's cursor",
            "bugle.yaml:27: routes.h.title: only an alert is shown",
            "bugle.yaml:28: routes.c.ttl: a call is never stored",
            "bugle.yaml:29: routes.r.kind: a raw push needs one of",
            "bugle.yaml:30: routes.list: an empty list",
            "bugle.yaml:31: routes.s: expected a mapping, found a single value",
            "bugle.yaml:32: routes.p.title.plural: missing",
            "bugle.yaml:32: routes.p.title.other: missing",
            "bugle.yaml:33: routes.d.data: expected a mapping",
        ] {
            #expect(found.contains { $0.hasPrefix(text) }, "\(text) in \(found)")
        }
    }

    @Test func `what does not go together is told at its key`() throws {
        let found = try faults(
            """
              a: {kind: call, coalesce: {window: 5s}}
              b: {title: x, coalesce: {window: 5s}}
              c: {kind: silent, collapse: k, coalesce: {summary: {title: x}}}
              d: {title: x, collapse: k, coalesce: {window: 25h, first: last}}
              e: {kind: hint, collapse: k, fcm: {a: b}}
              f: {kind: call, collapse: k, fcm_collapse: k, sound: s}
              g: {kind: silent, badge: 1, actions: [{id: a, title: b}]}
              h: {title: x, fallback: {title: y}}
              i: {kind: alert, ttl: 1h}
              j: {title: x, badge: some, fcm_collapse: "", ttl: 29d}
              k: {title: x, translations: {de: {subtitle: y}}}
              l: {title: x, duplicates: never, encrypt: maybe, sensitive: [iban]}
              m: {kind: hint, encrypt: true}
              n: {title: x, encrypt: true, fallback: {title: y}, apns: {a: "{{payload.b}}"}}
              o: {title: x, translations: {de: {title: y}, DE: {title: z}}}

            """)
        let expected = [
            "13: routes.a.coalesce: a call is never held back",
            "14: routes.b.coalesce: needs collapse",
            "15: routes.c.coalesce: summary: only an alert is shown",
            "16: routes.d.coalesce.window: expected a time from 100ms to 1d",
            "16: routes.d.coalesce.first: expected one of send, hold",
            "17: routes.e.fcm: a hint carries only the event's cursor",
            "17: routes.e.collapse: a hint carries only the event's cursor",
            "18: routes.f.collapse: a call is never stored",
            "18: routes.f.fcm_collapse: a call is never stored",
            "18: routes.f.sound: only an alert is shown",
            "19: routes.g.badge: only an alert is shown",
            "19: routes.g.actions: only an alert is shown",
            "20: routes.h.fallback: an alert shows its own texts",
            "21: routes.i.title: an alert needs a title or a body",
            "22: routes.j.badge: expected unread, none, a number",
            "22: routes.j.fcm_collapse: expected 1 to 64 bytes",
            "22: routes.j.ttl: expected a time from 0s to 28d",
            "23: routes.k.translations: subtitle: translated, but the route itself has no subtitle",
            "24: routes.l.duplicates: expected one of allow, avoid",
            "24: routes.l.encrypt: expected true or false",
            "24: routes.l.sensitive: expected paths",
            "25: routes.m.encrypt: a hint push has nothing that can be encrypted",
            "26: routes.n.apns: goes out in clear",
            "27: routes.o.translations.DE: this locale was given before",
        ]
        for text in expected {
            #expect(found.contains { $0.hasPrefix("bugle.yaml:\(text)") }, "\(text) in \(found)")
        }
        #expect(found.count == expected.count, "\(found)")
    }

    @Test func `lints tell what works and is a mistake`() throws {
        let text = """
              a: {title: x}
              b: {title: x, ttl: 1h, class: marketing}
              c: {title: x, ttl: 1h, importance: time_sensitive, link: "http://x/{{payload.a}}"}
              d: {title: "{{payload.iban}}", ttl: 1h, sensitive: [payload.iban], apps: [shop]}
              e: {title: x, ttl: 1h, image: "https://x/y", apps: [bank], android_channel: c}
              f: {title: x, ttl: 1h, pointer: "{{payload.iban}}", sensitive: [payload.iban], apps: [shop]}
              q: {title: x, ttl: 1h, apps: [shop], quiet_hours: {from: "22:00", to: "07:00"}}
              k1: {kind: silent, fcm_collapse: a, apps: [bank]}
              k2: {kind: silent, fcm_collapse: b, apps: [bank]}
              k3: {kind: silent, fcm_collapse: c, apps: [bank]}
              k4: {kind: silent, fcm_collapse: d, apps: [bank]}
              k5: {kind: silent, fcm_collapse: a, apps: [bank]}
              k6: {kind: silent, fcm_collapse: e}

            """
        let configuration = try configuration(text)
        let lints = try RouteTable.compile(configuration).lints(configuration)
            .map(\.description)
        let expected = [
            "bugle.yaml:13: routes.a: an alert without ttl",
            "bugle.yaml:13: routes.a: no Android channel in bank: give android_channel, or apps.bank.android_channels.normal",
            "bugle.yaml:14: routes.b: marketing without preference",
            "bugle.yaml:14: routes.b: marketing without quiet_hours",
            "bugle.yaml:14: routes.b: no Android channel in bank",
            "bugle.yaml:15: routes.c: no Android channel in shop: give android_channel, or apps.shop.android_channels.time_sensitive",
            "bugle.yaml:15: routes.c: importance time_sensitive needs an entitlement that apps.shop",
            "bugle.yaml:15: routes.c: http: is not one of apps.shop.link_schemes",
            "bugle.yaml:15: routes.c: no Android channel in bank",
            "bugle.yaml:15: routes.c: http: is not one of apps.bank.link_schemes",
            "bugle.yaml:16: routes.d: payload.iban is sensitive",
            "bugle.yaml:17: routes.e: image without apps.bank.image_hosts",
            "bugle.yaml:19: routes.q: ttl is shorter than quiet_hours",
            "bugle.yaml:25: routes.k6: fcm_collapse: more than 4 keys in bank",
        ]
        #expect(lints.count == expected.count)
        for (found, start) in zip(lints, expected) {
            #expect(found.hasPrefix(start), "\(found)")
        }
    }

    @Test func `lints look at every place where a value goes out in clear`() throws {
        func lints(_ route: String) throws -> [String] {
            let configuration = try configuration(
                "  t: {title: x, ttl: 1h, apps: [shop], sensitive: [payload.s], \(route)}\n")
            return try RouteTable.compile(configuration).lints(configuration).map(\.message)
        }
        let secret = "{{payload.s}}"
        for place in [
            "subtitle: '\(secret)'", "body: '\(secret)'", "thread: 't-\(secret)'",
            "collapse: 'c-\(secret)'", "badge: '\(secret)'", "link: 'shop://\(secret)'",
            "image: 'https://cdn.example.com/\(secret)'", "data: {a: {b: ['\(secret)']}}",
            "apns: {aps: {x: '\(secret)'}}", "actions: [{id: a, title: '\(secret)'}]",
            "actions: [{id: a, title: x, link: 'shop://\(secret)'}]",
            "translations: {de: {title: '\(secret)'}}",
            "collapse: c, coalesce: {window: 1s, summary: {title: '\(secret)'}}",
            "encrypt: true, fallback: {title: '\(secret)'}",
            "encrypt: true, fallback: {title: x}, collapse: '\(secret)'",
        ] {
            let found = try lints(place)
            #expect(
                found.count == 1 && found[0].hasPrefix("payload.s is sensitive"),
                "\(place): \(found)")
        }
        // A part of it, and the same in other words.
        for path in ["payload.s.number", "payload.'s'", "payload.s.lines.0"] {
            let quoted = path.replacing("'", with: "''")
            #expect(
                try lints("body: '{{\(quoted)}}'") == [
                    "payload.s is sensitive and goes out in clear, by \(path); use a pointer to it,"
                        + " or encrypt"
                ])
        }
        // The whole of which it is a part.
        let whole = try configuration(
            """
              t: {title: x, ttl: 1h, apps: [shop], sensitive: [payload.card.number, payload.cards.0],
                  data: {card: "{{payload.card}}", other: "{{payload.cards.1}}"}}

            """)
        #expect(
            try RouteTable.compile(whole).lints(whole).map(\.message) == [
                "payload.card.number is sensitive and goes out in clear, by payload.card; use a"
                    + " pointer to it, or encrypt"
            ])
        for place in [
            "body: '{{payload.so}}', data: {a: '{{labels.s}}'}",
            "pointer: 'o/\(secret)'", "body: '{{payload.other}}'",
            "encrypt: true, fallback: {title: x}, body: '\(secret)', data: {a: '\(secret)'}",
        ] { #expect(try lints(place).isEmpty, "\(place)") }
        for importance in ["time_sensitive", "critical"] {
            #expect(
                try lints("android_channel: c, importance: \(importance)").first?.hasPrefix(
                    "importance \(importance) needs an entitlement that apps.shop") == true)
        }
        #expect(
            try lints("collapse: c, coalesce: {window: 2h}")
                == ["coalesce.window is not shorter than ttl; windows will end early"])
    }

    @Test func `where all topics are of marketing, so are all routes`() throws {
        func lints(_ topics: String) throws -> [String] {
            let configuration = try Configuration.parse(
                text: """
                    kafka:
                      brokers: b
                      topics: {events: \(topics)}
                    apps: {a: {apns: {team_id: ABCDE12345, key_id: FGHIJ67890, key: "${K}", topic: a.b}}}
                    routes:
                      offer: {title: x, ttl: 1h}
                      sync: {kind: silent, preference: p}
                      code: {title: x, ttl: 5m, class: critical}

                    """, environment: ["K": "k"])
            return try RouteTable.compile(configuration).lints(configuration).map(\.description)
        }
        let offers = "{name: offers, class: marketing}"
        let found = try lints("[\(offers)]")
        #expect(found.count == 2, "\(found)")
        #expect(found.allSatisfy { $0.hasPrefix("bugle.yaml:6: routes.offer: marketing without") })
        #expect(try lints("[\(offers), orders]").isEmpty)
    }

    @Test func `quiet hours are a word or a mapping, with hours of their own or everybody's`()
        throws
    {
        let table = try table(
            """
              a: {title: x, quiet_hours: hold}
              b: {title: x, quiet_hours: suppress}
              c: {title: x, quiet_hours: {then: suppress, from: "12:00", to: "14:00"}}
              d: {title: x, quiet_hours: {high_passes: true}}
              e: {title: x}
              f: {kind: raw, apns: {aps: {}}, quiet_hours: hold}

            """,
            more: """
                content: {time_zone: Europe/Vienna, quiet_hours: {from: "22:00", to: "07:00"}}
                """)
        let quiet = table.routes.map(\.quiet)
        #expect(quiet.map { $0?.suppresses } == [false, true, true, false, nil, false])
        #expect(
            quiet.map { $0?.hours?.text } == [
                "22:00-07:00", "22:00-07:00", "12:00-14:00", "22:00-07:00", nil, "22:00-07:00",
            ])
        #expect(quiet.map { $0?.highPasses } == [false, false, false, true, nil, false])
        #expect(quiet.compactMap { $0?.timeZone }.allSatisfy { $0 == "Europe/Vienna" })
        #expect(table.routes.map(\.hasQuietHours) == [true, true, true, true, false, true])
    }

    @Test func `quiet hours that make no sense are told with line and key`() throws {
        let found = try faults(
            """
              a: {title: x, quiet_hours: sleep}
              b: {title: x, quiet_hours: {from: "25:00", to: "07:00"}}
              c: {title: x, quiet_hours: {from: "22:00"}}
              d: {title: x, quiet_hours: {from: "22:00", to: "22:00"}}
              e: {title: x, quiet_hours: {until: "07:00"}}
              f: {title: x, quiet_hours: {then: maybe, high_passes: often}}
              g: {kind: silent, quiet_hours: hold}
              h: {kind: call, quiet_hours: hold}
              i: {title: x, quiet_hours: [hold]}

            """, more: "content: {quiet_hours: hold}")
        for text in [
            "bugle.yaml:11: content.quiet_hours: expected a mapping",
            "bugle.yaml:13: routes.a.quiet_hours: expected one of hold, suppress",
            "bugle.yaml:14: routes.b.quiet_hours.from: expected a time of day",
            "bugle.yaml:15: routes.c.quiet_hours.from: from and to go together",
            "bugle.yaml:16: routes.d.quiet_hours.to: the same time as from",
            "bugle.yaml:17: routes.e.quiet_hours.until: unknown key",
            "bugle.yaml:18: routes.f.quiet_hours.then: expected one of",
            "bugle.yaml:18: routes.f.quiet_hours.high_passes: expected true or false",
            "bugle.yaml:19: routes.g.quiet_hours: only what may be shown",
            "bugle.yaml:20: routes.h.quiet_hours: only what may be shown",
            "bugle.yaml:21: routes.i.quiet_hours: expected a mapping",
        ] {
            #expect(found.contains { $0.hasPrefix(text) }, "\(text) in \(found)")
        }
        #expect(found.count == 11, "\(found)")
    }
}
