import Base
import Config
import JSON
import Routes
import Testing

@Suite struct `A template` {
    @Test func `takes values by their paths`() throws {
        let payload = #"{"a":{"b":[{"c":"x"},{"c":"y"}],"o.p":1},"n":90071992547409931,"t":true}"#
        #expect(try title("{{payload.a.b.1.c}}!", payload) == "y!")
        #expect(try title("{{payload.a.'o.p'}}", payload) == "1")
        #expect(try title("{{payload.n}}/{{payload.t}}", payload) == "90071992547409931/true")
        #expect(try title("{{id}} {{type}} {{user_id}} {{app}}", payload) == "e1 t u1 shop")
        #expect(try title("{{source}} {{time}}", "{}") == "orders 2026-01-01T00:00:00.000Z")
    }

    @Test func `a default stands in for what is missing, null or empty`() throws {
        for payload in ["{}", #"{"s":null}"#, #"{"s":""}"#] {
            #expect(try title("{{payload.s|Someone}} wrote", payload) == "Someone wrote")
            #expect(try title("{{ payload.s : upper | Some one }}", payload) == "Some one")
        }
        #expect(try title("{{payload.s|Someone}}", #"{"s":"Ada"}"#) == "Ada")
        #expect(try title("a{{payload.s|}}b", "{}") == "ab")
    }

    @Test(arguments: ["{}", #"{"s":null}"#, #"{"s":""}"#])
    func `so it does before formats of numbers and dates, and in data`(payload: String) throws {
        for format in ["number", "number(2)", "date", "time(short)", "number:upper"] {
            #expect(try title("{{payload.s:\(format)|soon}}", payload) == "soon", "\(format)")
        }
        let data = """
              t:
                title: x
                data:
                  word: "{{payload.s|none}}"
                  gone: "{{payload.s|}}"
                  list: ["{{payload.s|}}", "{{payload.s|y}}"]
                  deep: {gone: "{{payload.s|}}"}

            """
        let root = try JSONParser().parse(try Sample(payload: payload).render(try table(data)))
        let made = ByteWriter()
        root["data"]?.writeCompact(to: made)
        #expect(made.text == #"{"word":"none","list":["y"],"deep":{}}"#)
        // Where nothing stands in, an empty text is what there is.
        let bare = try table("  t: {title: x, data: {word: '{{payload.s}}'}}\n")
        let found = try? Sample(payload: payload).render(bare)
        #expect(found?.contains(#""data":{"word":""}"#) ?? false == payload.contains(#":"""#))
    }

    @Test func `a missing field is an error that names it`() throws {
        let routes = try table("  t: {title: 'Hi {{payload.user.name}}'}\n")
        #expect(try Sample().refusal(routes) == "payload.user.name is missing")
        #expect(
            try Sample(payload: #"{"user":{"name":null}}"#).refusal(routes)
                == "payload.user.name is missing")
        #expect(
            try Sample(payload: #"{"user":{"name":{"x":1}}}"#).refusal(routes)
                == "payload.user.name is an object, not a text")
        #expect(
            try Sample(payload: #"{"user":{"name":[]}}"#).refusal(routes)
                == "payload.user.name is a list, not a text")
    }

    @Test func `a field that any language needs is missed for all`() throws {
        let routes = try table(
            """
              t:
                title: Hi
                translations: {de: {title: "Hallo {{payload.name}}"}}

            """)
        #expect(try Sample().refusal(routes) == "payload.name is missing")
    }

    @Test func `braces that stand for themselves`() throws {
        #expect(try title(#"\{{x}} {a} }}"#, "{}") == "{{x}} {a} }}")
    }

    @Test func `hostile values stay text`() throws {
        let hostile = #"\",\"badge\":99,\"x\":\"\u0000\u001f\\ {{payload.secret}}"#
        let routes = try table(
            "  t: {title: 'Hi {{payload.name}}', data: {n: '{{payload.name}}'}}\n")
        let text = try Sample(payload: #"{"name":"\#(hostile)","secret":"s"}"#).render(routes)
        let root = try JSONParser().parse(text)
        var names: [String] = []
        root["notification"]?.forEachMember { name, _ in
            names.append(String(decoding: name, as: UTF8.self))
        }
        #expect(names == ["title", "channel_id"])
        #expect(
            root["notification"]?["title"]?.string
                == "Hi \",\"badge\":99,\"x\":\"\0\u{1f}\\ {{payload.secret}}")
        #expect(root["data"]?.count == 1)
    }

    @Test(arguments: [
        ("a {{payload.x", "a {{ without its }}"), ("{{}}", "a path is missing"),
        ("{{sender}}", "business data is payload.sender"), ("{{payload}}", "name a field of it"),
        ("{{payload..a}}", "a name is missing beside a dot"),
        ("{{payload.a:shout}}", "shout is no format"),
        ("{{payload.a:upper(1)}}", "upper takes no argument"),
        ("{{payload.a:truncate}}", "truncate needs a number of characters"),
        ("{{payload.a:truncate(0)}}", "truncate needs a number of characters"),
        ("{{payload.a:upper:number}}", "number has to be the first format"),
        ("{{payload.a:number(99)}}", "number takes the digits"),
        ("{{payload.a:date(soon)}}", "date takes one of full, long, medium, short, or the wanted"),
        ("{{payload.a:time(jmm)}}", "time takes one of full, long, medium, short"),
        ("{{id.x}}", "id has no fields"), ("{{cursor.x}}", "a cursor has log and seq"),
        ("{{payload.a b}}", "stands in single quotes"), ("{{payload.'a}}", "a quote is not closed"),
    ])
    func `a mistake is found when it is read`(_ text: String, _ message: String) throws {
        let quoted = text.replacing("'", with: "''")
        let found = try faults("  t:\n    kind: alert\n    title: '\(quoted)'\n")
        #expect(found.count == 1)
        let line = try #require(found.first)
        #expect(
            line.hasPrefix("bugle.yaml:15: routes.t.title: ") && line.contains(message), "\(line)")
    }
}

@Suite struct `A format` {
    @Test func `case follows the language`() throws {
        #expect(try title("{{payload.s:upper}}", #"{"s":"straße"}"#) == "STRASSE")
        #expect(
            try title("{{payload.s:upper}}", #"{"s":"istanbul"}"#, locale: "tr", own: "tr")
                == "İSTANBUL")
        #expect(try title("{{payload.s:lower}}", #"{"s":"ΌΣΟΣ"}"#) == "όσος")
    }

    @Test func `truncate counts characters as a reader does`() throws {
        let family = "👨‍👩‍👧‍👦"
        let payload =
            #"{"s":"\#(family)\#(family)\#(family)","t":"hello world","e":"e\u0301e\u0301"}"#
        #expect(try title("{{payload.s:truncate(3)}}", payload) == family + family + family)
        #expect(try title("{{payload.s:truncate(2)}}", payload) == family + "…")
        #expect(try title("{{payload.t:truncate(7)}}", payload) == "hello…")
        #expect(try title("{{payload.t:truncate(11)}}", payload) == "hello world")
        #expect(try title("{{payload.t:truncate(1)}}", payload) == "…")
        #expect(try title("{{payload.e:truncate(2)}}", payload) == "e\u{301}e\u{301}")
    }

    @Test(arguments: [
        ("en", "1,234,567.5"), ("de-AT", "1\u{a0}234\u{a0}567,5"), ("de", "1.234.567,5"),
        ("fr", "1\u{202f}234\u{202f}567,5"), ("de-CH", "1’234’567.5"), ("hi-IN", "12,34,567.5"),
        ("pl", "1\u{a0}234\u{a0}567,5"), ("ar-EG", "١٬٢٣٤٬٥٦٧٫٥"), ("zz", "1,234,567.5"),
    ])
    func `numbers follow the reader`(_ locale: String, _ text: String) throws {
        let own = String(locale.prefix(2))
        #expect(
            try title("{{payload.n:number}}", #"{"n":1234567.5}"#, locale: locale, own: own) == text
        )
    }

    @Test func `digits behind the point are rounded half to even, and every digit counts`() throws {
        #expect(try title("{{payload.n:number(2)}}", #"{"n":"2.345"}"#) == "2.34")
        #expect(try title("{{payload.n:number(2)}}", #"{"n":7}"#) == "7.00")
        #expect(
            try title("{{payload.n:number}}", #"{"n":9007199254740993}"#) == "9,007,199,254,740,993"
        )
        #expect(try title("{{payload.n:number}}", #"{"n":-1.5e3}"#) == "-1,500")
        let routes = try table("  t: {title: '{{payload.n:number|none}}'}\n")
        #expect(try Sample(payload: #"{"n":"1,5"}"#).refusal(routes) == "payload.n is not a number")
        #expect(try Sample(payload: #"{"n":true}"#).refusal(routes) == "payload.n is not a number")
        // Written out digit by digit it would be a gigabyte.
        for number in ["1e999999999", "-1e400"] {
            #expect(
                try Sample(payload: #"{"n":\#(number)}"#).refusal(routes)
                    == "payload.n is not a number")
        }
        #expect(try title("{{payload.n:number|none}}", "{}") == "none")
    }

    @Test(arguments: [
        ("{{payload.at:date}}", "en-US", "America/New_York", "Dec 31, 2025"),
        ("{{payload.at:date(full)}}", "en-GB", "Europe/London", "Thursday, 1 January 2026"),
        ("{{payload.at:time}}", "en-US", "America/New_York", "7:30\u{202f}PM"),
        ("{{payload.at:time}}", "en-GB", "Asia/Kolkata", "06:00"),
        ("{{payload.at:datetime(short)}}", "en-GB", "Europe/Vienna", "01/01/2026, 01:30"),
        ("{{payload.at:date(EEEdMMM)}}", "en-GB", "Europe/Vienna", "Thu, 1 Jan"),
        ("{{payload.at:date}}", "en-GB", "Mars/Olympus", "1 Jan 2026"),
        ("{{payload.day:date(long)}}", "en-GB", "Pacific/Auckland", "24 December 2026"),
        ("{{payload.ms:time}}", "en-GB", "UTC", "00:30"),
    ])
    func `dates follow the reader and the reader's clock`(
        _ template: String, _ locale: String, _ zone: String, _ text: String
    ) throws {
        let payload =
            #"{"at":"2026-01-01T00:30:00Z","day":"2026-12-24","ms":1767227400000}"#
        #expect(try title(template, payload, locale: locale, zone: zone) == text)
    }

    @Test func `what is no time is an error`() throws {
        let routes = try table("  t: {title: '{{payload.at:date}}'}\n")
        for value in ["\"tomorrow\"", "1767227400", "\"2026-02-30\"", "true"] {
            #expect(
                try Sample(payload: #"{"at":\#(value)}"#).refusal(routes)
                    == "payload.at is not a time: RFC 3339, a date, or milliseconds since the epoch"
            )
        }
    }

    @Test func `an English sentence has no French date in it`() throws {
        let payload = #"{"at":"2026-03-02T12:00:00Z"}"#
        #expect(try title("On {{payload.at:date(EEEE)}}", payload, locale: "fr-FR") == "On Monday")
    }
}

@Suite struct `A translation` {
    private let routes = """
          t:
            title: "own {{payload.n:number}}"
            body: own body
            translations:
              de: {title: "de {{payload.n:number}}", body: de Text}
              de-AT: {title: "at {{payload.n:number}}"}
              zh-Hant: {title: hant}
              he: {title: he}

        """

    @Test(arguments: [
        ("de-AT", "at 1\u{a0}234,5", "de Text"), ("de_AT.UTF-8", "at 1\u{a0}234,5", "de Text"),
        ("de-CH", "de 1’234.5", "de Text"), ("DE", "de 1.234,5", "de Text"),
        ("en-GB", "own 1,234.5", "own body"), ("fr", "own 1,234.5", "own body"),
        ("zh-TW", "hant", "own body"), ("zh-Hant-HK", "hant", "own body"),
        ("zh-CN", "own 1,234.5", "own body"), ("iw", "he", "own body"),
        ("", "own 1,234.5", "own body"), ("%%%", "own 1,234.5", "own body"),
        (String(repeating: "a-", count: 500), "own 1,234.5", "own body"),
    ])
    func `falls back text by text`(_ locale: String, _ title: String, _ body: String) throws {
        let text = try Sample(payload: #"{"n":1234.5}"#).render(try table(routes), locale: locale)
        let notification = try JSONParser().parse(text)["notification"]
        #expect(notification?["title"]?.string == title)
        #expect(notification?["body"]?.string == body)
    }

    @Test func `the route's own language beats a translation that fits less`() throws {
        let routes = try table(
            "  t: {title: at, translations: {de: {title: de}}}\n", more: "content: {locale: de-AT}")
        #expect(try Sample().render(routes, locale: "de-AT").contains("\"title\":\"at\""))
        #expect(try Sample().render(routes, locale: "de-DE").contains("\"title\":\"de\""))
    }

    @Test(arguments: [
        (0, "en", "Nothing"), (1, "en", "1 file"), (2, "en", "2 files"), (1, "ru", "1 файл"),
        (3, "ru", "3 файла"), (5, "ru", "5 файлов"), (21, "ru", "21 файл"),
        (2, "ar", "ملفان"), (2, "fr", "2 files"),
    ])
    func `plurals have the forms of their language`(
        _ count: Int, _ locale: String, _ text: String
    ) throws {
        let routes = try table(
            """
              t:
                title:
                  plural: payload.n
                  =0: Nothing
                  one: "{{payload.n}} file"
                  other: "{{payload.n}} files"
                translations:
                  ru:
                    title:
                      plural: payload.n
                      one: "{{payload.n}} файл"
                      few: "{{payload.n}} файла"
                      other: "{{payload.n}} файлов"
                  ar: {title: {plural: payload.n, two: "ملفان", other: "{{payload.n}} ملف"}}

            """)
        let found = try Sample(payload: #"{"n":\#(count)}"#).render(routes, locale: locale)
        #expect(found.contains("\"title\":\"\(text)\""), "\(found)")
    }

    @Test func `a plural needs its number`() throws {
        let routes = try table("  t: {title: {plural: payload.n, other: x}}\n")
        #expect(try Sample().refusal(routes) == "payload.n is missing")
        #expect(try Sample(payload: #"{"n":"2"}"#).refusal(routes) == "payload.n is not a number")
    }
}
