import Base
import Gateways
import JSON
import Testing

@Suite struct `FCM requests` {
    private let block = #"{\"id\":\"\#(Event.message.text)\",\"type\":\"order.shipped\"}"#

    private func alert() throws -> Event { try Event(#"{"notification":{"title":"x"}}"#) }

    @Test func `a notification for Android becomes a whole request`() throws {
        let event = try Event(
            #"""
            {"notification":{"title":"Ada","body":"Hi 🎉","image":"https://example.com/a.png",
             "channel_id":"chat","sound":"default","subtitle":"only iOS"},"data":{"room":"12"}}
            """#)
        let built = Built(fcm: event.content)
        #expect(built.rendering == .request([]))
        #expect(
            built.request.fields.map { $0.name.description } == [
                ":method", ":scheme", ":authority", ":path", "authorization", "content-type",
            ])
        #expect(built[":path"] == "/v1/projects/demo-project/messages:send")
        #expect(built[":authority"] == "fcm.googleapis.com")
        #expect(built["authorization"] == "Bearer ya29.x")
        let never = built.request.fields.filter { $0.indexing == .neverIndexed }
        #expect(never.map { $0.name.description } == ["authorization"])
        #expect(
            built.body
                == #"{"message":{"token":"abc:APA91b-x_y","notification":{"title":"Ada","#
                + #""body":"Hi 🎉","image":"https://example.com/a.png"},"data":{"room":"12","#
                + #""bugle":"\#(block)"},"android":{"priority":"HIGH","ttl":"3600s","#
                + #""notification":{"tag":"\#(Event.identity.text)","channel_id":"chat","#
                + #""sound":"default"}}}}"#)
    }

    @Test func `an iOS registration gets the APNs part`() throws {
        let event = try Event(
            #"{"notification":{"title":"Ada","subtitle":"Room"},"unread":2,"collapse_key":"c"}"#)
        let built = Built(fcm: event.content, to: fcmTarget(platform: "ios"))
        #expect(!built.body.contains("android"))
        #expect(
            built.body.contains(
                #""apns":{"headers":{"apns-priority":"10","apns-expiration":"1735693200","#
                    + #""apns-collapse-id":"c"},"payload":{"aps":{"alert":{"title":"Ada","#
                    + #""subtitle":"Room"},"badge":2}}}"#))
    }

    @Test func `a browser gets its headers, an unknown platform both of the others`() throws {
        let event = try alert()
        let web = Built(fcm: event.content, to: fcmTarget(platform: "web")).body
        #expect(
            web.contains(
                #""webpush":{"headers":{"TTL":"3600","Urgency":"normal","#
                    + #""Topic":"ERERERERURGREREREREREQ"},"notification":{"tag":"#
                    + #""\#(Event.identity.text)"}}"#))
        #expect(!web.contains("android") && !web.contains("apns"))
        let unknown = Built(fcm: event.content, to: fcmTarget(platform: nil)).body
        #expect(unknown.contains(#""android":{"#) && unknown.contains(#""apns":{"#))
    }

    @Test func `a silent event is a data message of normal priority`() throws {
        let event = try Event(#"{"data":{"k":"1"}}"#)
        let android = Built(fcm: event.content).body
        #expect(android.contains(#""android":{"priority":"NORMAL","ttl":"3600s"}"#))
        #expect(!android.contains("notification"))
        let apple = Built(fcm: event.content, to: fcmTarget(platform: "ios")).body
        #expect(apple.contains(#""apns-priority":"5""#))
        #expect(apple.contains(#""aps":{"content-available":1}"#))
    }

    @Test(
        arguments: [
            #"{"notification":{"badge":3}}"#, #"{"notification":{"sound":"default"}}"#,
            #"{"notification":{"subtitle":"only Apple's"}}"#,
            #"{"notification":{"sound":"a","image":"https://example.com/a.png"}}"#,
        ], [false, true])
    func `what only Apple's devices show is no empty line on Android`(
        json: String, isShownByApp: Bool
    ) throws {
        let event = try Event(json)
        event.content.isShownByAndroidApp = isShownByApp
        let android = Built(fcm: event.content)
        #expect(android.rendering == .request([]))
        #expect(android.body.contains(#""android":{"priority":"NORMAL","ttl":"3600s"}"#))
        #expect(!android.body.contains("notification"))
        let unknown = Built(fcm: event.content, to: fcmTarget(platform: nil)).body
        #expect(unknown.contains(#""priority":"NORMAL""#))
        #expect(unknown.contains(#""apns-priority":"10""#))
        let web = Built(fcm: event.content, to: fcmTarget(platform: "web")).body
        #expect(web.contains(#""Urgency":"low""#) && !web.contains(#""tag""#))
        let keyed = try Event(#"{"notification":{"body_loc_key":"NEW"}}"#)
        #expect(Built(fcm: keyed.content).body.contains(#""priority":"HIGH""#))
    }

    @Test func `FCM-08: without a collapse key only the tag collapses, on every attempt`() throws {
        let event = try alert()
        let tag = #""tag":"\#(Event.identity.text)""#
        for now in [newYear, at(30)] {
            event.content.now = now
            let body = Built(fcm: event.content).body
            #expect(body.contains(tag))
            #expect(!body.contains("collapse_key"))
        }
        let given = try Event(
            #"{"notification":{"title":"x"},"fcm":{"android":{"collapse_key":"news"}}}"#)
        let body = Built(fcm: given.content).body
        #expect(body.contains(#""collapse_key":"news""#) && body.contains(tag))
    }

    @Test(arguments: ["android", "android_v2", "webpush"])
    func `data for one platform counts in the limit`(place: String) throws {
        let names = #""collapse_key":"c","#
        func message(_ bytes: Int) throws -> Built {
            let text = String(repeating: "x", count: bytes - 1)
            let members = place == "webpush" ? "" : names
            let event = try Event(
                #"{"data":{"a":"b"},"fcm":{"\#(place)":{\#(members)"data":{"k":"\#(text)"}}}}"#)
            return Built(fcm: event.content)
        }
        #expect(try message(4096).rendering == .request([]))
        #expect(try message(4097).rendering == .tooLarge(bytes: 4097, limit: 4096))
    }

    @Test func `FCM-10: values become text with every digit`() throws {
        let event = try Event(
            #"""
            {"data":{"id":21465,"big":9007199254740993,"ok":true,"nested":{"a":[1, 2]},"n":null,
             "f":1.50,"e":1E400,"q":"say \"hi\"","z":-0}}
            """#)
        let built = Built(fcm: event.content)
        #expect(built.rendering == .request(.droppedNulls))
        let expected = [
            "id": "21465", "big": "9007199254740993", "ok": "true", "nested": #"{"a":[1,2]}"#,
            "f": "1.50", "e": "1E400", "q": #"say "hi""#, "z": "-0",
        ]
        let data = try built.json { body in
            var data: [String: String] = [:]
            body["message"]?["data"]?.forEachMember { name, value in
                data[String(decoding: name, as: UTF8.self)] = value.string ?? "not a string"
            }
            return data
        }
        #expect(data.filter { $0.key != "bugle" } == expected)
        #expect(data["bugle"]?.hasPrefix(#"{"id":""#) == true)
    }

    @Test func `FCM-11: reserved names never leave`() throws {
        let event = try Event(
            #"""
            {"data":{"from":"alice","message_type":"x","google.foo":"1","googlex":"1","gcm":"2",
             "gcm.bar":"2","fromage":"ok","collapse_key":"c","bugle":"mine"},
             "fcm":{"data":{"from":"bob","extra":5}}}
            """#)
        let built = Built(fcm: event.content)
        #expect(built.rendering == .request(.droppedReservedKeys))
        let names = try built.json { body in
            var names: [String] = []
            body["message"]?["data"]?.forEachMember { name, value in
                names.append(String(decoding: name, as: UTF8.self))
                #expect(value.string != nil)
            }
            return names
        }
        #expect(names == ["fromage", "collapse_key", "extra", "bugle"])
        #expect(Built(fcm: event.content).body == built.body)
    }

    @Test func `an override is merged last and cannot redirect the message`() throws {
        let event = try Event(
            #"""
            {"notification":{"title":"a"},"data":{"k":"1","l":"2"},
             "fcm":{"token":"other","topic":"all","name":"n","data":{"k":9},
              "android":{"priority":"NORMAL","notification":{"tag":"room"},"ttl":null},
              "fcm_options":{"analytics_label":"x"}}}
            """#)
        let built = Built(fcm: event.content)
        #expect(built.rendering == .request([]))
        #expect(
            built.body
                == #"{"message":{"token":"abc:APA91b-x_y","notification":{"title":"a"},"#
                + #""data":{"l":"2","k":"9","bugle":"\#(block)"},"android":{"priority":"NORMAL","#
                + #""notification":{"tag":"room"}},"fcm_options":{"analytics_label":"x"}}}"#)
    }

    @Test func `APNS-15: the life that is left is the ttl`() throws {
        let event = try alert()
        event.content.now = at(600)
        #expect(Built(fcm: event.content).body.contains(#""ttl":"3000s""#))
        event.content.now = at(3600)
        #expect(Built(fcm: event.content).rendering == .expired)
        event.content.storesNothing = true
        #expect(Built(fcm: event.content).body.contains(#""ttl":"0s""#))
        let long = try Event(#"{"notification":{"title":"x"}}"#, ttl: 90 * 86_400)
        #expect(Built(fcm: long.content).body.contains(#""ttl":"2419200s""#))
        #expect(Built(fcm: long.content).rendering == .request(.shortenedExpiry))
    }

    @Test func `FCM-13: names, values and texts may have 4096 bytes together`() throws {
        let empty = try Event(#"{"notification":{"title":"é"},"data":{"k":""}}"#)
        let block = try Built(fcm: empty.content).json { body in
            body["message"]?["data"]?["bugle"]?.stringBytes?.count ?? 0
        }
        // "bugle" and the block, "k", the two bytes of the title; the rest are quotes for "k".
        let spare = 4096 - 5 - block - 1 - 2
        func built(_ count: Int, _ patch: String = "{}") throws -> Built {
            let text = String(repeating: "\\\"", count: count)
            return Built(
                fcm: try Event(
                    #"{"notification":{"title":"é"},"data":{"k":"\#(text)"},"fcm":\#(patch)}"#
                ).content)
        }
        #expect(try built(spare).rendering == .request([]))
        #expect(
            try built(spare, #"{"notification":{"title":"ab"}}"#).rendering == .request([]))
        for over in [
            try built(spare + 1), try built(spare, #"{"notification":{"title":"abc"}}"#),
            try built(spare, #"{"data":{"a":""}}"#),
        ] {
            #expect(over.isRejected(for: .localPayloadTooLarge))
        }
    }

    @Test func `a token with characters of no token makes no request`() throws {
        let event = try alert()
        for token in ["", "a b", "a\"b", "a\\b", "a\nb", "é", String(repeating: "a", count: 4097)] {
            let built = Built(fcm: event.content, to: fcmTarget(token))
            #expect(built.isMalformedToken, "\(token.prefix(8))")
        }
    }

    @Test func `a validation asks FCM to check only`() throws {
        let event = try alert()
        event.content.validateOnly = true
        #expect(Built(fcm: event.content).body.hasSuffix(#"},"validate_only":true}"#))
        #expect(try Built(fcm: event.content).json { $0["validate_only"]?.bool } == true)
    }
}
