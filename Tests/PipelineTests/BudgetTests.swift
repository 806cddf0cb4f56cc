import Base
import Crypto
import Foundation
import Gateways
import JSON
import Testing

@testable import Pipeline

@Suite struct `Budgets of bytes` {
    private static let routes = """
          t: {title: "{{payload.t}}", body: "{{payload.b}}", data: {k: "{{payload.k}}"}, ttl: 1h}
          app: {title: "{{payload.t}}", body: "{{payload.b}}", ttl: 1h, android_display: app}
          sealed:
            title: "{{payload.t}}"
            body: "{{payload.b}}"
            data: {k: "{{payload.k}}"}
            ttl: 1h
            encrypt: true
            fallback: {title: General}

        """

    private let explained: Explained
    private let key: DevicePrivateKey

    init() throws {
        explained = try Explained(routes: Self.routes)
        key = try #require(DevicePrivateKey(scalar: [UInt8](repeating: 5, count: 32)))
    }

    private func quoted(_ text: String) -> String {
        let bytes = ByteWriter()
        bytes.append(jsonString: text)
        return bytes.text
    }

    private func answer(
        _ body: String, title: String = "t", data: String = "d", type: String = "t",
        on gateway: Gateway
    ) throws -> Explanation.Answer {
        let keys =
            #","public_keys":[{"kid":"k","jwk":{"kty":"EC","crv":"P-256","x":"#
            + #""\#(Base64URL.encode(key.x))","y":"\#(Base64URL.encode(key.y))"}}]"#
        return try explained.answer(
            to: #"{"id":"e","type":"\#(type)","user_id":"u1","payload":{"t":\#(quoted(title)),"#
                + #""b":\#(quoted(body)),"k":\#(quoted(data))}}"#, on: gateway, keys)
    }

    // MARK: What gateways count

    private static func limit(_ gateway: Gateway) -> Int { gateway == .webpush ? 3993 : 4096 }

    /// The payload's bytes as each gateway's documents say, from the request's JSON.
    private func payloadBytes(_ request: Explanation.Request, _ gateway: Gateway) throws -> Int {
        let parser = JSONParser()
        let root = try parser.parse(request.body)
        var count = 0
        switch gateway {
        case .apns, .webpush: return request.bodyBytes
        case .fcm:
            let message = try #require(root["message"])
            message["data"]?.forEachMember { count += $0.count + ($1.stringBytes?.count ?? 0) }
            message["notification"]?.forEachMember { count += $1.stringBytes?.count ?? 0 }
        case .expo:
            for text: StaticString in ["title", "subtitle", "body"] {
                count += root[text]?.stringBytes?.count ?? 0
            }
            let data = ByteWriter()
            root["data"]?.writeCompact(to: data)
            count += data.count + 200
            count += root["richContent"]?["image"]?.stringBytes?.count ?? 0
        }
        return count
    }

    /// The body that a device shows.
    private func shown(_ request: Explanation.Request, _ gateway: Gateway) throws -> String {
        let parser = JSONParser()
        let root = try parser.parse(request.secret ?? request.body)
        let holder: JSONValue? =
            switch gateway {
            case _ where request.secret != nil: root["notification"]
            case .apns: root["aps"]?["alert"]
            case .fcm: root["message"]?["notification"]
            case .webpush: root["notification"]
            case .expo: root
            }
        return holder?["body"]?.string ?? ""
    }

    /// Whether `cut` is what a reader would call a beginning of `whole`: some of its characters,
    /// the blanks at their end left out, and an ellipsis.
    private func isCut(_ cut: String, of whole: String) -> Bool {
        guard cut.hasSuffix("…") else { return false }
        let kept = Array(cut.unicodeScalars.dropLast())
        var scalars: [Unicode.Scalar] = []
        for character in whole {
            if scalars.count >= kept.count { break }
            scalars += Array(character.unicodeScalars)
        }
        return scalars == kept
    }

    // MARK: At the limit

    /// Case 95: 1016 characters of four bytes fit APNs to the last three, 1017 do not.
    @Test func `the limit is met to the byte`() throws {
        for gateway in Gateway.allCases {
            let empty = try #require(try answer("x", on: gateway).request)
            let room = Self.limit(gateway) - (try payloadBytes(empty, gateway)) + 1
            let fits = String(repeating: "a", count: room)
            let whole = try #require(try answer(fits, on: gateway).request)
            #expect(try payloadBytes(whole, gateway) == Self.limit(gateway))
            #expect(try shown(whole, gateway) == fits)
            let cut = try #require(try answer(fits + "a", on: gateway).request)
            #expect(try payloadBytes(cut, gateway) == Self.limit(gateway))
            #expect(try shown(cut, gateway) == String(repeating: "a", count: room - 3) + "…")
        }
    }

    @Test(arguments: [
        ("a family", "👨‍👩‍👧‍👦"), ("a flag", "🇦🇹"), ("a flag of tags", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"),
        ("a skin tone", "👍🏽"), ("a keycap", "7️⃣"), ("combining marks", "a\u{301}\u{323}\u{308}"),
        ("a stack of marks", "z" + String(repeating: "\u{300}", count: 12)),
        ("conjoining jamo", "\u{1112}\u{1161}\u{11AB}"), ("a conjunct", "क्षि"), ("Thai", "กำ"),
        ("Hebrew with points", "שׁ"), ("Arabic", "لَا"), ("four bytes", "𠮷"), ("a line end", "\r\n"),
        ("a control", "\u{1}"), ("a quote", "\""),
    ])
    func `characters stay whole wherever the cut falls`(_ name: String, _ text: String) throws {
        for gateway in Gateway.allCases {
            // Every place of the cut inside the character.
            for shift in 0..<text.utf8.count {
                let whole =
                    String(repeating: "x", count: shift + 1)
                    + String(repeating: text, count: 6000 / text.utf8.count)
                let request = try #require(try answer(whole, on: gateway).request)
                let body = try shown(request, gateway)
                #expect(isCut(body, of: whole), "\(name) \(gateway) \(shift)")
                let bytes = try payloadBytes(request, gateway)
                #expect(bytes <= Self.limit(gateway), "\(name) \(gateway) \(shift)")
                // No character more would have fitted; white space at the end goes with the cut.
                let piece = quoted(text).utf8.count - 2
                #expect(
                    bytes > Self.limit(gateway) - piece - 3 || text.first?.isWhitespace == true,
                    "\(name) \(gateway) \(shift)")
                if gateway == .webpush { break }
            }
        }
    }

    @Test(arguments: ["a", "\"", "\u{1}", "é\\"])
    func `what an Android app shows itself is measured as the JSON that it is in`(text: String)
        throws
    {
        let whole = "x" + String(repeating: text, count: 5000)
        let request = try #require(try answer(whole, type: "app", on: .fcm).request)
        let bytes = try payloadBytes(request, .fcm)
        let limit = Self.limit(.fcm)
        #expect(bytes <= limit && bytes > limit - (quoted(text).utf8.count - 2) - 3)
        let parser = JSONParser()
        let block = try parser.parse(request.body)["message"]?["data"]?["bugle"]?.string
        let shown = try JSONParser().parse(try #require(block))["notification"]?["body"]?.string
        #expect(isCut(try #require(shown), of: whole))
    }

    @Test func `text from right to left ends on its own side`() throws {
        // Isolates stay as the sender set them; the ellipsis follows the last letter.
        let text = String(repeating: "\u{2067}שלום עולם\u{2069} ", count: 400)
        let request = try #require(try answer(text, on: .apns).request)
        let body = try shown(request, .apns)
        #expect(isCut(body, of: text) && !body.dropLast().last!.isWhitespace)
    }

    @Test func `half a character in the input is one dead letter`() throws {
        for text in [#""\ud800""#, #""a\udc00b""#, #""\ud83c\u0041""#, #""\ud83c""#] {
            let event = #"{"type":"t","user_id":"u1","payload":{"t":"t","b":\#(text),"k":"d"}}"#
            #expect(throws: EventCheck.Refusal.self) { try explained.answer(to: event, on: .apns) }
        }
        let pair = #"{"type":"t","user_id":"u1","payload":{"t":"t","b":"\ud83c\udf89","k":"d"}}"#
        let request = try #require(try explained.answer(to: pair, on: .apns).request)
        #expect(try shown(request, .apns) == "🎉")
    }

    @Test func `what is not text is refused with its sizes`() throws {
        for gateway in Gateway.allCases {
            let long = String(repeating: "k", count: 5000)
            guard
                case .rejected(let reason, let detail) = try answer("b", data: long, on: gateway)
            else {
                Issue.record("\(gateway): sent")
                continue
            }
            #expect(reason == "payload_too_large")
            let numbers = detail.split { !$0.isNumber }.compactMap { Int($0) }
            #expect(numbers.count == 2 && numbers[0] > 5000, "\(detail)")
            #expect(numbers.last == Self.limit(gateway))
        }
    }

    // MARK: Whatever the text

    /// Pieces out of which texts of many scripts are made; each is one character or more.
    private static let pieces: [String] = [
        "a", "Z", " ", "  ", "\n", "\t", "\"", "\\", "/", "\u{0}", "\u{1F}", "\u{7F}", "é",
        "e\u{301}",
        "ß", "ﬃ", "Ω", "Ж", "א", "שׁ", "\u{200F}", "\u{2067}", "\u{2069}", "ع", "لا", "َ", "هـ", "क",
        "क्ष", "ि", "த", "க்", "ก", "ำ", "한", "\u{1112}\u{1161}", "日", "本", "𠮷", "𝒳", "👍", "👍🏿",
        "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇩", "7️⃣", "\u{200D}", "\u{FE0F}", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "…", "z\u{300}\u{301}\u{302}",
        "\u{2028}", "\u{FEFF}", "\u{FFFD}", "\u{10FFFF}", "\r\n", "{{x}}", "null",
    ]

    private func text(upTo bytes: Int, _ random: inout SeededRandom) -> String {
        // A few scripts at a time, as people write.
        let alphabet = (0..<Int.random(in: 1...8, using: &random)).map { _ in
            Self.pieces[Int.random(in: 0..<Self.pieces.count, using: &random)]
        }
        var text = ""
        let wanted = Int.random(in: 0...bytes, using: &random)
        while text.utf8.count < wanted {
            text += alphabet[Int.random(in: 0..<alphabet.count, using: &random)]
        }
        return text
    }

    @Test func `the payload fits, and only the body is shorter`() throws {
        let seed = UInt64.random(in: 0...UInt64.max)
        var random = SeededRandom(seed: seed)
        var cuts = 0
        for round in 0..<120 {
            let body = "b" + text(upTo: 7000, &random)
            let title = "t" + text(upTo: 200, &random)
            let data = text(upTo: 900, &random)
            let type = round % 3 == 0 ? "sealed" : "t"
            for gateway in Gateway.allCases {
                let place: Comment = "seed \(seed), round \(round), \(gateway)"
                let answer = try answer(body, title: title, data: data, type: type, on: gateway)
                let plain = try self.answer(
                    "B", title: title, data: data, type: type, on: gateway)
                guard let request = answer.request else {
                    // Then even its first character is too much; encryption counts in threes.
                    if type == "sealed" { continue }
                    let least = String(body.prefix(1)) + "…"
                    let answer = try self.answer(
                        least, title: title, data: data, type: type, on: gateway)
                    #expect(answer.request == nil, place)
                    continue
                }
                #expect(try payloadBytes(request, gateway) <= Self.limit(gateway), place)
                let shown = try shown(request, gateway)
                if shown != body {
                    cuts += 1
                    #expect(isCut(shown, of: body), place)
                }
                // All else is as it is beside a short body. What is encrypted is compared in clear.
                let whole = try #require(plain.request, place)
                let said = (request.secret ?? request.body)
                    .replacing("\"body\":" + quoted(shown), with: #""body":"B""#)
                #expect(said == whole.secret ?? whole.body, place)
            }
        }
        #expect(cuts > 50, "seed \(seed)")
    }
}
