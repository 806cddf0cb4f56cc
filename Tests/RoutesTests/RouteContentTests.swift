import Base
import Config
import JSON
import Routes
import Testing

@Suite struct `What a route makes` {
    @Test func `an alert with everything`() throws {
        let table = try table(
            """
              t:
                title: "Order {{payload.id}}"
                subtitle: "{{payload.shop|}}"
                body: ready
                importance: high
                image: "https://cdn.example.com/{{payload.id}}.png"
                link: "shop://orders/{{payload.id}}"
                sound: ding.caf
                badge: "{{payload.open}}"
                thread: "order-{{payload.id}}"
                category: ORDER
                pointer: "o/{{payload.id}}"
                actions:
                  - {id: track, title: Track, link: "https://x.example/{{payload.id}}"}
                  - {id: stop, title: Stop}
                translations: {de: {actions: {track: Verfolgen}}}
                data:
                  id: "{{payload.id}}"
                  text: "#{{payload.id}}"
                  lines: "{{payload.lines|}}"
                  count: 2
                  zip: 01234
                  nested: {deep: ["{{payload.open}}", true, ~]}
                apns: {aps: {relevance-score: 0.5}}

            """)
        let payload = #"{"id":7,"open":3,"lines":[1,{"a":"b"}]}"#
        let text = try Sample(payload: payload).render(table, locale: "de-AT")
        #expect(
            text == """
                {"notification":{"title":"Order 7","body":"ready",\
                "image":"https://cdn.example.com/7.png","link":"shop://orders/7",\
                "sound":"ding.caf","badge":3,"thread_id":"order-7","pointer":"o/7",\
                "mutable_content":true,"category":"ORDER","channel_id":"urgent",\
                "actions":[{"id":"track","title":"Verfolgen","link":"https://x.example/7"},\
                {"id":"stop","title":"Stop"}]},\
                "data":{"id":7,"text":"#7","lines":[1,{"a":"b"}],"count":2,"zip":"01234",\
                "nested":{"deep":[3,true,null]}},"apns":{"aps":{"relevance-score":0.5}}}
                """)
        let without = try Sample(payload: #"{"id":7,"open":3}"#).render(table)
        #expect(!without.contains("lines"))
    }

    @Test(
        arguments: [
            (#""image":"https://cdn.example.com/a.png""#, nil),
            (#""image":"https://a.img.example.com/a.png""#, nil),
            (#""image":"https://evil.example/a.png""#, "notification.image"),
            (#""image":"http://cdn.example.com/a.png""#, "notification.image"),
            (#""link":"shop://orders/7""#, nil), (#""link":"HTTPS://x.example/7""#, nil),
            (#""link":"javascript:alert(1)""#, "notification.link"),
            (#""link":"orders/7""#, "notification.link"),
            (#""actions":[{"id":"a","title":"A"}]"#, nil),
            (
                #""actions":[{"id":"a","title":"A","link":"tel:1"}]"#,
                "notification.actions"
            ),
        ] as [(String, String?)])
    func `what the event brings leads where the app lists, as far as it lists anything`(
        member: String, refused: String?
    ) throws {
        let table = try table("  t: {title: x}\n  quiet: {kind: silent}\n")
        let explicit = #"{"notification":{"title":"x",\#(member)}}"#
        for type in ["t", "quiet"] {
            let sample = try Sample(type, explicit: explicit)
            if let refused {
                let error = #expect(throws: TemplateError.self) { try sample.render(table) }
                #expect(error?.field == refused)
            } else {
                #expect(try sample.render(table).contains(member))
            }
            // An app without lists.
            let free = try Sample(type, app: "bank", explicit: explicit)
            #expect(try free.render(table).contains(member))
        }
    }

    @Test func `what the event brings is merged last`() throws {
        let table = try table(
            """
              t:
                title: "{{payload.missing}}"
                body: route
                sound: ding
                data: {a: route, b: "{{payload.also_missing}}"}
                apns: {aps: {sound: route, thread-id: x}, headers: {apns-priority: 5}}

            """)
        let sample = try Sample(
            explicit: """
                {"notification":{"title":"own","sound":null},"data":{"b":[1],"c":2},
                 "apns":{"aps":{"sound":null,"badge":1}},"fcm":{"x":1}}
                """)
        #expect(
            try sample.render(table) == """
                {"notification":{"body":"route","channel_id":"general","title":"own","sound":null},\
                "data":{"a":"route","b":[1],"c":2},\
                "apns":{"aps":{"sound":null,"thread-id":"x","badge":1},\
                "headers":{"apns-priority":5}},"fcm":{"x":1}}
                """)
    }

    @Test func `kinds that show nothing have no notification, but where something must be seen`()
        throws
    {
        let table = try table(
            """
              silent: {kind: silent, data: {a: "{{payload.a}}"}, fallback: {title: "New {{payload.a}}"}}
              quiet: {kind: silent, data: {a: 1}}
              hint: {kind: hint}
              call: {kind: call, data: {from: "{{payload.a}}"}, fallback: {title: Call}}
              raw: {kind: raw, apns: {aps: {alert: "{{payload.a}}"}}}

            """)
        func made(_ type: String, mustSee: Bool = false) throws -> String {
            var sample = try Sample(type, payload: #"{"a":"x"}"#)
            sample.event.cursor = ("inbox", 7)
            return try sample.render(table, mustSee: mustSee)
        }
        #expect(try made("silent") == #"{"data":{"a":"x"}}"#)
        #expect(
            try made("silent", mustSee: true)
                == #"{"notification":{"title":"New x"},"data":{"a":"x"}}"#)
        #expect(try made("quiet", mustSee: true) == #"{"data":{"a":1}}"#)
        #expect(try made("hint") == "{}")
        #expect(try made("call") == #"{"data":{"from":"x"}}"#)
        #expect(try made("raw") == #"{"apns":{"aps":{"alert":"x"}}}"#)
        #expect(try Sample("hint").refusal(table) == "cursor is missing")
    }

    @Test func `hints collapse by their log, calls never, the rest as the route says`() throws {
        let table = try table(
            """
              h: {kind: hint}
              c: {kind: call}
              a: {title: x, collapse: "order-{{payload.id}}"}
              b: {title: x, collapse: "{{payload.id|}}"}

            """)
        func key(_ type: String, _ payload: String) throws -> String? {
            var sample = try Sample(type, payload: payload)
            sample.event.cursor = ("inbox", 7)
            return try sample.match(table)?.collapseKey(of: sample.event, with: sample.renderer)
        }
        #expect(try key("h", "{}") == "hint/inbox")
        #expect(try key("c", "{}") == nil)
        #expect(try key("a", #"{"id":"1\r\nX: y"}"#) == "order-1\r\nX: y")
        #expect(try key("b", "{}") == nil)
        #expect(throws: TemplateError.self) { try key("a", "{}") }
    }

    @Test func `a critical notification has a critical sound`() throws {
        let table = try table("  t: {title: x, importance: critical, sound: siren.caf}\n")
        #expect(
            try Sample().render(table).contains(
                #""sound":{"critical":1,"name":"siren.caf","volume":1}"#))
    }

    @Test func `calls go to VoIP addresses at Apple, other kinds to ordinary ones`() throws {
        let table = try table(
            """
              c: {kind: call}
              a: {title: x}
              w: {kind: raw, addresses: [widgets, controls], apns: {aps: {}}}

            """)
        let call = try #require(try Sample("c").match(table))
        #expect(
            call.addresses(kind: "voip", at: .apns) && !call.addresses(kind: "alert", at: .apns))
        #expect(
            call.addresses(kind: "alert", at: .fcm) && call.addresses(kind: "alert", at: .webpush))
        let alert = try #require(try Sample("a").match(table))
        #expect(
            alert.addresses(kind: "alert", at: .apns) && !alert.addresses(kind: "voip", at: .apns))
        let widgets = try #require(try Sample("w").match(table))
        #expect(widgets.addresses(kind: "widgets", at: .apns))
        #expect(!widgets.addresses(kind: "alert", at: .apns))
    }

    @Test func `an alert that comes out empty is refused`() throws {
        let table = try table("  t: {title: '{{payload.a|}}', body: '{{payload.b|}}'}\n")
        #expect(
            try Sample().refusal(table)
                == "notification has neither a title nor a body for this reader")
        #expect(try Sample(payload: #"{"b":"x"}"#).render(table).contains(#"{"body":"x","#))
        #expect(try Sample(explicit: #"{"notification":{"title":"x"}}"#).refusal(table) == nil)
    }

    @Test func `a whole value is no larger than what an event may bring itself`() throws {
        let tables = [
            "data: {rows: '{{payload.rows}}'}", "data: {a: ['{{payload.rows|}}']}",
            "apns: {extra: '{{payload.rows}}'}",
        ].map { "  t: {title: x, \($0)}\n" }
        for table in try tables.map({ try table($0) }) {
            func refusal(_ bytes: Int) throws -> String? {
                let text = String(repeating: "x", count: bytes - 4)
                return try Sample(payload: #"{"rows":["\#(text)"]}"#).refusal(table)
            }
            #expect(try refusal(32_768) == nil)
            #expect(
                try refusal(32_769)
                    == "payload.rows has 32769 bytes; the limit is 32768, and no gateway takes more "
                    + "than 5120")
        }
    }

    @Test func `a badge is a whole number`() throws {
        let table = try table("  t: {title: x, badge: '{{payload.n}}'}\n")
        for value in ["\"3\"", "1.5", "-1", "{}"] {
            #expect(
                try Sample(payload: #"{"n":\#(value)}"#).refusal(table)
                    == "payload.n is not a whole number from 0 up")
        }
        #expect(try Sample(payload: #"{"n":0}"#).render(table).contains(#""badge":0"#))
    }

    @Test func `so is its default, which may be none`() throws {
        for payload in ["{}", #"{"n":null}"#, #"{"n":""}"#] {
            let seven = try table("  t: {title: x, badge: '{{payload.n|7}}'}\n")
            #expect(try Sample(payload: payload).render(seven).contains(#""badge":7"#))
            let none = try table("  t: {title: x, badge: '{{payload.n|}}'}\n")
            #expect(try !Sample(payload: payload).render(none).contains("badge"))
        }
        for text in ["x", "-1", "1.5", "9223372036854775808"] {
            let found = try faults("  t: {title: x, badge: '{{payload.n|\(text)}}'}\n")
            #expect(
                found.map { $0.contains("the default has to be a whole number from 0 up") }
                    == [true], "\(found)")
        }
    }
}

@Suite struct `An address` {
    @Test(arguments: [
        ("shop://o/{{payload.v}}", "1", nil),
        ("{{payload.v}}", "https://evil.example/", nil),
        ("{{payload.v}}", "HTTPS://x/", nil),
        ("{{payload.v}}", "javascript:alert(1)", "link has a scheme that is not one of"),
        ("{{payload.v}}", "java\\nscript:x", "link is no address with a scheme"),
        ("{{payload.v}}", " https://x", "link is no address with a scheme"),
        ("{{payload.v}}", "//x/y", "link is no address with a scheme"),
        ("{{payload.v}}", "shop:", "link is no address with a scheme"),
    ])
    func `leads where the app allows`(
        _ link: String, _ value: String, _ refusal: String?
    ) throws {
        let table = try table("  t: {title: x, link: '\(link)'}\n")
        let found = try Sample(payload: #"{"v":"\#(value)"}"#).refusal(table)
        if let refusal {
            #expect(found?.hasPrefix(refusal) == true, "\(found ?? "none")")
        } else {
            #expect(found == nil)
        }
    }

    @Test func `a value cannot become another part of it`() throws {
        let table = try table("  t: {title: x, link: 'shop://o/{{payload.v}}?x={{payload.w}}'}\n")
        let text = try Sample(payload: #"{"v":"1/../pay?to=me#é","w":"a&b=c d"}"#).render(table)
        #expect(
            text.contains(
                #""link":"shop://o/1%2F..%2Fpay%3Fto%3Dme%23%C3%A9?x=a%26b%3Dc%20d""#))
    }

    @Test(arguments: [
        ("https://cdn.example.com/a.png", true), ("https://CDN.example.com:8443/a", true),
        ("https://a.img.example.com/x", true), ("https://img.example.com/x", false),
        ("http://cdn.example.com/a", false), ("https://cdn.example.com@evil.example/a", false),
        ("https://cdn.example.com.evil.example/", false), ("https:cdn.example.com/", false),
        ("https://evil.example/?cdn.example.com", false),
        ("https://evil.example#.img.example.com", false),
        ("https://cdn.example.com\\\\@evil.example/", false), ("data:image/png;base64,xx", false),
    ])
    func `an image comes from a listed host`(_ image: String, _ fits: Bool) throws {
        let table = try table("  t: {title: x, image: '{{payload.v}}'}\n")
        #expect(try (Sample(payload: #"{"v":"\#(image)"}"#).refusal(table) == nil) == fits)
    }
}
