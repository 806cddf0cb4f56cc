import Base
import Config
import Foundation
import Telemetry
import Testing

/// The smallest valid configuration, with room for more at the end.
let minimal = """
    kafka:
      brokers: localhost:9092
    apps:
      shop:
        fcm: {service_account: "${SA}"}

    """

func parse(_ text: String, _ environment: [String: String] = ["SA": "{}"]) throws -> Configuration {
    try Configuration.parse(text: text, environment: environment)
}

/// The lines that a faulty text is answered with.
func faults(_ text: String, _ environment: [String: String] = ["SA": "{}"]) -> [String] {
    do throws(ConfigurationErrors) {
        _ = try Configuration.parse(text: text, environment: environment)
        return []
    } catch {
        return error.problems.map(\.description)
    }
}

@Suite struct `A valid configuration` {
    @Test func `a host has at most 255 bytes`() {
        let host = String(repeating: "a", count: 255)
        #expect(HostPort("\(host):1")?.host == host && HostPort("\(host)a:1") == nil)
        #expect(Endpoint("https://\(host)/")?.host == host && Endpoint("https://\(host)a/") == nil)
    }

    @Test func `defaults fill what is not given`() throws {
        let configuration = try parse(minimal)
        #expect(configuration.kafka.brokers == "localhost:9092")
        #expect(configuration.kafka.group == "bugle")
        #expect(!configuration.kafka.instance.isEmpty)
        #expect(configuration.kafka.commit == .transactional)
        let topics = configuration.kafka.topics
        #expect(topics.events == [.init(name: "push.events", eventClass: .transactional)])
        #expect(topics.devices == "push.devices" && topics.deadLetters == "push.events-dlt")
        #expect(configuration.redis.addresses == [HostPort(host: "localhost", port: 6379)])
        #expect(configuration.redis.password == nil)
        #expect(configuration.index.store == .redis)
        let index = configuration.index
        #expect(index.staleness.after == .hours(90 * 24))
        #expect(index.staleness.fcmAfter == .hours(270 * 24))
        #expect(index.sweep.interval == .hours(1) && index.sweep.rate == 1_000)
        #expect(index.fuse.percent == 5 && index.fuse.tokensMin == 50)
        #expect(index.fuse.window == .minutes(5) && index.lagMax == .minutes(2))
        #expect(index.gatewayPreference == [.apns, .fcm, .webpush, .expo])
        #expect(configuration.lanes == .auto)
        #expect(configuration.roles == [.dispatch, .index])
        #expect(try parse(minimal + "roles: dispatch\n").roles == [.dispatch])
        #expect(configuration.admin.description == "127.0.0.1:9464")
        #expect(configuration.drainDeadline == .seconds(20))
        #expect(configuration.dispatch.apnsConnections == .init(min: 2, max: 10))
        #expect(configuration.dispatch.retry.base == .milliseconds(200))
        #expect(configuration.limits.eventBytes == 262_144)
        #expect(configuration.log.level == .info && configuration.log.format == nil)
        #expect(!configuration.cloudEvents.userFromSubject)
        let fcm = try #require(configuration.app(named: "shop")?.fcm)
        #expect(fcm.endpoint.description == "https://fcm.googleapis.com")
        #expect(try fcm.serviceAccount.read().exposed == "{}")
    }

    @Test func `web push has keys by name, the default one first`() throws {
        let text = """
            kafka:
              brokers: localhost:9092
            apps:
              shop:
                webpush:
                  subject: mailto:ops@example.com
                  vapid_keys:
                    old: {key: "${OLD}", public_key: BA}
                    new: {key: "${NEW}"}
                  default_key: new
                  allowed_hosts: [push.example.net, "*.example.org:8443"]
                  ttl_min: 1

            """
        let configuration = try parse(text, ["OLD": "a", "NEW": "b"])
        let webPush = try #require(configuration.app(named: "shop")?.webPush)
        #expect(webPush.subject == "mailto:ops@example.com")
        #expect(webPush.keys.map(\.id) == ["new", "old"])
        #expect(webPush.keys[1].publicKey == "BA")
        #expect(try webPush.keys[0].key.read().exposed == "b")
        #expect(webPush.allowedHosts == ["push.example.net", "*.example.org:8443"])
        #expect(!webPush.allowLoopback && webPush.ttlMin == 1)
    }

    @Test func `web push without a key, or with several and no default, is refused`() {
        func webPush(_ lines: String) -> [String] {
            faults(
                """
                kafka:
                  brokers: localhost:9092
                apps:
                  shop:
                    webpush: {subject: "mailto:a@example.com", \(lines)}

                """, ["K": "k"])
        }
        let key = #"{key: "${K}"}"#
        #expect(webPush("vapid_keys: {v1: \(key)}").isEmpty)
        #expect(webPush("ttl_min: 0").contains { $0.contains("vapid_keys") })
        let id = String(repeating: "k", count: 128)
        #expect(webPush("vapid_keys: {\(id): \(key)}").isEmpty)
        #expect(
            webPush("vapid_keys: {\(id)k: \(key)}").contains {
                $0.hasSuffix("a key is named by 1 to 128 bytes")
            })
        #expect(
            webPush("vapid_keys: {v1: \(key), v2: \(key)}").contains {
                $0.contains("default_key")
            })
        #expect(
            webPush("vapid_keys: {v1: \(key)}, default_key: v2").contains {
                $0.contains("no such key")
            })
        #expect(
            webPush("vapid_keys: {v1: \(key)}, allowed_hosts: [https://a.example]").contains {
                $0.contains("without https://")
            })
        #expect(
            webPush("vapid_keys: {v1: \(key)}, allow_host: a").contains {
                $0.contains("unknown key")
            })
    }

    @Test func `tables of registrations can be described`() throws {
        let configuration = try parse(
            minimal + """
                index:
                  debezium:
                    device_registrations:
                    crm.phones:
                      app: shop
                      environment: sandbox
                      gateways: {IOS: apns, ANDROID: fcm}
                      columns: {token: fcm_token, instance: , user_id: owner}

                """)
        let tables = configuration.index.tables
        #expect(tables.map(\.name) == ["device_registrations", "crm.phones"])
        #expect(tables[0].app == "shop" && tables[0].environment == .production)
        #expect(tables[0].gateways == nil && tables[0].columns.isEmpty)
        #expect(tables[1].environment == .sandbox)
        #expect(tables[1].gateways == ["IOS": .apns, "ANDROID": .fcm])
        let columns: [String: String?] = [
            "token": "fcm_token", "instance": nil, "user_id": "owner",
        ]
        #expect(tables[1].columns == columns)
    }

    @Test func `a table of registrations is checked`() {
        let found = faults(
            minimal + """
                index:
                  debezium:
                    phones:
                      app: shopp
                      environment: none
                      gateways: {ios: apple}
                      columns: {tokn: a}
                      colums: {}

                """)
        #expect(found.count == 5)
        for text in [
            "index.debezium.phones.app: shopp is not one of apps",
            "index.debezium.phones.environment: expected production or sandbox",
            "index.debezium.phones.gateways.ios: expected one of apns, fcm, webpush, expo",
            "columns.tokn: no field of an address; did you mean \"token\"?",
            "colums: unknown key; did you mean \"columns\"?",
        ] {
            #expect(found.contains { $0.contains(text) }, "\(text) in \(found)")
        }
    }

    @Test func `everything can be said`() throws {
        let configuration = try parse(
            """
            kafka:
              brokers: "a:1, b:2"
              group: g
              instance: g-0
              commit: plain
              static_membership: true
              topics:
                events: [{name: e1, class: critical}, e2, {name: e3}]
                devices: d
                invalidations: i
                results: r
                dead_letters: x
              properties:
                security.protocol: sasl_ssl
                sasl.password: ${KP}
                ssl.key.password: {file: kp}
                socket.timeout.ms: 1000
            redis:
              {address: "[::1]:7", prefix: "p:", database: 3, username: u, password: "${RP}",
               timeout: 250ms}
            index:
              store: memory
              fuse: {percent: 10, tokens_min: 20, window: 10m}
              staleness: {after: 60d, fcm_after: 30d}
              sweep: {interval: 10m, rate: 50}
              lag_max: 30s
              gateway_preference: [fcm, apns]
            apps:
              one:
                apns:
                  team_id: ABCDE12345
                  key_id: FGHIJ67890
                  key_file: keys/a.p8
                  topic: com.example.one
                  endpoints: {production: "https://127.0.0.1:8443", sandbox: "https://localhost/"}
                  ca_file: /etc/ca.pem
              two:
                fcm:
                  service_account_file: sa.json
                  project_id: p-1
                  endpoint: https://[::1]:8443
                  token_endpoint: https://oauth2.example.com/token?x=1
                  ramp: 5m
            lanes: 7
            roles: [index]
            admin: {listen: "0.0.0.0:0"}
            drain_deadline: 2m
            dispatch:
              max_in_flight_events: 5
              in_flight_per_bulkhead: 6
              connections: {apns: {min: 1, max: 1}, fcm: {max: 1}}
              retry: {attempts: 1, base: 1s, max_wait: 1m}
            limits: {event_bytes: 2048, addresses_per_user: 10}
            log: {level: debug, format: pretty}
            cloudevents: {user_from_subject: true}
            """, ["KP": "k", "RP": "r"])
        let kafka = configuration.kafka
        #expect(
            kafka.topics.events == [
                .init(name: "e1", eventClass: .critical),
                .init(name: "e2", eventClass: .transactional),
                .init(name: "e3", eventClass: .transactional),
            ])
        #expect(
            kafka.properties == [
                .init(name: "security.protocol", value: .value(Secret("sasl_ssl"))),
                .init(name: "sasl.password", value: .value(Secret("k"))),
                .init(name: "ssl.key.password", value: .file("kp")),
                .init(name: "socket.timeout.ms", value: .value(Secret("1000"))),
            ])
        #expect(configuration.redis.addresses == [HostPort(host: "::1", port: 7)])
        #expect(configuration.redis.password == .value(Secret("r")))
        #expect(configuration.redis.timeout == .milliseconds(250))
        let index = configuration.index
        #expect(index.store == .memory && index.lagMax == .seconds(30))
        #expect(index.fuse.percent == 10 && index.fuse.tokensMin == 20)
        #expect(index.fuse.window == .minutes(10))
        #expect(index.staleness.after == .hours(60 * 24))
        #expect(index.staleness.fcmAfter == .hours(30 * 24))
        #expect(index.sweep.interval == .minutes(10) && index.sweep.rate == 50)
        #expect(index.gatewayPreference == [.fcm, .apns])
        #expect(configuration.apps.map(\.name) == ["one", "two"])
        let apns = try #require(configuration.apps[0].apns)
        #expect(apns.key == .file("keys/a.p8") && apns.caFile == "/etc/ca.pem")
        #expect(apns.production.host == "127.0.0.1" && apns.production.port == 8443)
        let fcm = try #require(configuration.apps[1].fcm)
        #expect(fcm.endpoint.authority == HostPort(host: "::1", port: 8443))
        #expect(fcm.tokenEndpoint?.path == "/token?x=1" && fcm.tokenEndpoint?.port == 443)
        #expect(fcm.ramp == .minutes(5))
        #expect(configuration.lanes == .count(7) && configuration.roles == [.index])
        #expect(configuration.dispatch.fcmConnections == .init(min: 1, max: 1))
        #expect(configuration.dispatch.retry.maxWait == .minutes(1))
        #expect(configuration.log.format == .pretty && configuration.log.level == .debug)
        #expect(configuration.cloudEvents.userFromSubject)
    }

    @Test func `anchors, aliases and empty values are understood`() throws {
        let configuration = try parse(
            """
            kafka: {brokers: &b "localhost:1", group: ~, topics: }
            redis: {address: *b}
            apps: {shop: {fcm: {service_account: "${SA}"}}}
            """)
        #expect(configuration.redis.addresses[0].port == 1)
        #expect(configuration.kafka.group == "bugle")
    }

    @Test func `variables are replaced inside scalars, after parsing`() throws {
        let text = minimal + "redis: {username: \"${P}-${Q:-q: [}-$${x}$\"}\nlanes: ${N:-3}\n"
        let configuration = try parse(text, ["SA": "{}", "P": "a: b"])
        #expect(configuration.lanes == .count(3))
        #expect(configuration.redis.username == "a: b-q: [-${x}$")
        #expect(
            faults(text).first
                == #"bugle.yaml:6: redis.username: the environment variable P is not set"#)
    }
}

@Suite struct `A faulty configuration` {
    @Test func `an unknown key is answered with the nearest known one`() {
        #expect(
            faults("kafka:\n  brokers: a:1\n  comit: plain\n  zzz: 1\n" + minimal.dropFirst(33))
                == [
                    #"bugle.yaml:3: kafka.comit: unknown key; did you mean "commit"?"#,
                    "bugle.yaml:4: kafka.zzz: unknown key; known here: brokers, group, instance,"
                        + " commit, static_membership, topics, properties",
                ])
        #expect(
            faults(minimal + "lnaes: 2\n")
                == [#"bugle.yaml:6: lnaes: unknown key; did you mean "lanes"?"#])
    }

    @Test func `a required key under a wrong name is told once`() {
        #expect(
            faults("kafka:\n  brokrs: a:1\n" + minimal.dropFirst(33))
                == [#"bugle.yaml:2: kafka.brokrs: unknown key; did you mean "brokers"?"#])
        #expect(
            faults(minimal.replacing("kafka:", with: "kafak:"))
                == [#"bugle.yaml:1: kafak: unknown key; did you mean "kafka"?"#])
        #expect(
            faults(minimal.replacing("service_account:", with: "servce_account:")) == [
                "bugle.yaml:5: apps.shop.fcm.servce_account: unknown key; did you mean"
                    + " \"service_account\"?"
            ])
        // One that is missing for no such reason is told too.
        #expect(
            faults("kafka: {grup: x}\n" + minimal.dropFirst(33)) == [
                "bugle.yaml:1: kafka.brokers: missing; it has no default",
                #"bugle.yaml:1: kafka.grup: unknown key; did you mean "group"?"#,
            ])
    }

    @Test func `every section is known, given or not`() throws {
        let fault = try #require(faults(minimal + "qqqqqqqqqq: 2\n").first)
        let known = try #require(fault.split(separator: "known here: ").last)
            .split(separator: ", ").map(String.init)
        for section in [
            "kafka", "redis", "egress", "apps", "index", "lanes", "roles", "admin",
            "drain_deadline",
            "dispatch", "limits", "log", "tracing", "cloudevents", "content", "caps", "routes",
        ] {
            #expect(known.contains(section), "\(section)")
        }
        #expect(try parse(minimal).tracing == nil)
    }

    @Test func `a key with dots is told how it is written`() {
        #expect(
            faults(minimal + "kafka.commit: plain\n")
                == ["bugle.yaml:6: kafka.commit: unknown key; nest it: kafka: {commit: ...}"])
        #expect(
            faults(minimal + "dispatch.retry.max_wait: 5s\n") == [
                "bugle.yaml:6: dispatch.retry.max_wait: unknown key; nest it: "
                    + "dispatch: {retry: {max_wait: ...}}"
            ])
        #expect(faults(minimal + "zzzzzz.commit: 1\n").first?.contains("known here") == true)
    }

    @Test func `what Bugle sets itself is refused, as README has it`() throws {
        let readme = try String(
            contentsOf: URL(filePath: #filePath).deletingLastPathComponent()
                .appending(path: "../../README.md").standardized, encoding: .utf8)
        let row = try #require(
            readme.split(separator: "\n").first { $0.hasPrefix("| `kafka.properties`") })
        let list = try #require(row.components(separatedBy: "sets itself: ").last)
        let names = list.components(separatedBy: "`").filter { $0.contains(where: \.isLetter) }
        #expect(names.count > 10)
        for name in names {
            let text = minimal.replacing(
                "  brokers: localhost:9092\n",
                with: "  brokers: localhost:9092\n  properties: {\(name): x}\n")
            #expect(
                faults(text).first?.contains("\(name): set by Bugle itself") == true, "\(name)")
        }
    }

    @Test func `a draft has its faults and what could be read`() throws {
        let path = URL(filePath: NSTemporaryDirectory())
            .appending(path: "bugle-draft-\(UUID().uuidString).yaml")
        defer { try? FileManager.default.removeItem(at: path) }
        try Data((minimal + "lanes: many\nroutes: {a: {tilte: x}}\n").utf8).write(to: path)
        let draft = Configuration.draft(path: path.path, environment: ["SA": "{}"])
        #expect(draft.problems.map(\.key) == ["lanes"])
        #expect(draft.configuration?.routing.isEmpty == false)
        let missing = Configuration.draft(path: path.path + "x", environment: [:])
        #expect(missing.configuration == nil && missing.problems.count == 1)
    }

    @Test func `Redis may be a cluster and secured`() throws {
        func redis(_ text: String) throws -> Configuration.Redis {
            try Configuration.parse(
                text: minimal + "redis: {\(text)}\n", environment: ["SA": "{}"]
            ).redis
        }
        let plain = try redis("database: 1")
        #expect(plain.cluster == .auto && plain.tls == nil && plain.addresses.count == 1)
        let cluster = try redis("address: [\"a:1\", \"b:2\"], tls: true")
        #expect(cluster.addressText == "a:1, b:2" && cluster.cluster == .true)
        #expect(cluster.tls == .init() && cluster.database == 0)
        #expect(try redis("tls: false").tls == nil && redis("tls: {}").tls == .init())
        #expect(try redis("cluster: false").cluster == .false)
        let tls = try #require(
            try redis("tls: {ca_file: /c, cert_file: t, key_file: k, server_name: n}").tls)
        #expect(tls.caFile == "/c" && tls.certificateFile == "t" && tls.keyFile == "k")
        #expect(tls.serverName == "n")
    }

    @Test(
        arguments: [
            ("lanes: 65", "lanes: expected auto or a whole number from 1 to 64"),
            ("lanes: [1]", "lanes: expected a single value, found a list"),
            ("redis: 7", "redis: expected a mapping, found a single value"),
            (
                "drain_deadline: 20",
                "drain_deadline: expected a time from 0s to 10m with its unit, such as 20s"
            ),
            (
                "drain_deadline: 11m",
                "drain_deadline: expected a time from 0s to 10m with its unit, such as 20s"
            ),
            ("roles: []", "roles: expected dispatch, index, or both as [dispatch, index]"),
            (
                "roles: [dispatcher]",
                "roles: expected dispatch, index, or both as [dispatch, index]"
            ),
            ("roles: both", "roles: expected dispatch, index, or both as [dispatch, index]"),
            ("admin: {listen: 9464}", "admin.listen: expected host:port"),
            ("admin: {listen: \"a:70000\"}", "admin.listen: expected host:port"),
            ("log: {level: trace}", "log.level: expected one of debug, info, warning, error"),
            ("log: {format: xml}", "log.format: expected one of auto, json, pretty"),
            (
                "cloudevents: {user_from_subject: yes}",
                "cloudevents.user_from_subject: expected true or false"
            ),
            (
                "limits: {event_bytes: 1.5}",
                "limits.event_bytes: expected a whole number from 1024 to 524288"
            ),
            (
                "dispatch: {connections: {apns: {min: 3, max: 2}}}",
                "dispatch.connections.apns.min: larger than max"
            ),
            (
                "dispatch: {retry: {base: 2s, max_wait: 1s}}",
                "dispatch.retry.max_wait: shorter than base"
            ),
            (
                "index: {lag_max: 1s}",
                "index.lag_max: expected a time from 10s to 1h with its unit, such as 20s"
            ),
            (
                "index: {staleness: {fcm_after: 271d}}",
                "index.staleness.fcm_after: expected a time from 1h to 270d with its unit, "
                    + "such as 20s"
            ),
            (
                "index: {sweep: {rate: 0}}",
                "index.sweep.rate: expected a whole number from 1 to 100000"
            ),
            (
                "index: {sweep: {interval: 8d}}",
                "index.sweep.interval: expected a time from 1s to 7d with its unit, such as 20s"
            ),
            (
                "index: {fuse: {percent: 0}}",
                "index.fuse.percent: expected a whole number from 1 to 100"
            ),
            (
                "index: {fuse: {window: 30s}}",
                "index.fuse.window: expected a time from 1m to 1h with its unit, such as 20s"
            ),
            (
                "index: {gateway_preference: [apns, apns]}",
                "index.gateway_preference: expected each of apns, fcm, webpush, expo at most once"
            ),
            (
                "index: {lagmax: 1m}",
                "index.lagmax: unknown key; did you mean \"lag_max\"?"
            ),
            ("redis: {address: []}", "redis.address: expected at least one host:port"),
            (
                "redis: {address: [a:1, b]}",
                "redis.address: expected host:port, or a list of them for a cluster; a host has at "
                    + "most 255 bytes"
            ),
            (
                "redis: {address: [a:1, b:2], cluster: false}",
                "redis.cluster: several addresses are those of one cluster: leave it out"
            ),
            (
                "redis: {address: \"\(String(repeating: "a", count: 256)):1\"}",
                "redis.address: expected host:port, or a list of them for a cluster; a host has at "
                    + "most 255 bytes"
            ),
            (
                "redis: {tls: {server_name: \"\"}}",
                "redis.tls.server_name: expected the name in the servers' certificates, 1 to 255 "
                    + "bytes"
            ),
            (
                "redis: {tls: {server_name: \(String(repeating: "a", count: 256))}}",
                "redis.tls.server_name: expected the name in the servers' certificates, 1 to 255 "
                    + "bytes"
            ),
            (
                "redis: {cluster: true, database: 1}",
                "redis.database: a cluster has database 0 only: leave it out"
            ),
            ("redis: {cluster: maybe}", "redis.cluster: expected one of auto, true, false"),
            ("redis: {tls: maybe}", "redis.tls: expected true, false or a mapping"),
            ("redis: {tls: {cert_file: a}}", "redis.tls.cert_file: given without key_file"),
            (
                "redis: {tls: {cafile: a}}",
                "redis.tls.cafile: unknown key; did you mean \"ca_file\"?"
            ),
            (
                "redis: {password_file: a, password: \"${SA}\"}",
                "redis.password: given twice: here and as password_file"
            ),
        ])
    func `a wrong value says what would have been right`(text: String, expected: String) {
        #expect(faults(minimal + text + "\n") == ["bugle.yaml:6: " + expected])
    }

    @Test func `a literal secret is refused and not repeated`() {
        let text = minimal + "redis: {password: hunter2}\n"
        let expected =
            "bugle.yaml:6: redis.password: a secret must not stand in this file; write ${NAME} to"
            + " take it from the environment, or use password_file"
        #expect(faults(text) == [expected])
        #expect(faults(minimal + "redis: {password: \"${P:-hunter2}\"}\n").count == 1)
        let kafka = "kafka: {brokers: \"a:1\", properties: {sasl.password: hunter2}}\n"
        let lines = faults(kafka + minimal.dropFirst(33))
        #expect(
            lines.count == 1
                && lines[0].hasPrefix("bugle.yaml:1: kafka.properties.sasl.password: a secret"))
        #expect(!lines[0].contains("hunter2"))
        #expect(
            faults(minimal, [:]).first?.hasSuffix("the environment variable SA is not set") == true)
    }

    @Test func `an unknown commit mode names the known ones`() {
        let text = "kafka: {brokers: \"a:1\", commit: exactly}\n" + minimal.dropFirst(33)
        #expect(
            faults(text) == [
                "bugle.yaml:1: kafka.commit: expected one of transactional, plain"
            ])
    }

    @Test func `topics have one use each`() {
        let text = """
            kafka:
              brokers: a:1
              topics:
                events: [e, e]
                results: push.devices
                dead_letters: e
            """
        #expect(
            faults(text + "\n" + minimal.dropFirst(33)) == [
                "bugle.yaml:4: kafka.topics.events: names the same topic as events; every topic has one use",
                "bugle.yaml:5: kafka.topics.results: names the same topic as devices; every topic has one use",
                "bugle.yaml:6: kafka.topics.dead_letters: names the same topic as events; every topic has one use",
            ])
    }

    @Test func `no topic is one of those in which events wait`() {
        let text = """
            kafka:
              brokers: a:1
              topics:
                events: w-fcm-none
                results: w-held
                dead_letters: push.events-retry-1m
                parked: w
            """
        let reason = "; every topic has one use"
        #expect(
            faults(text + "\n" + minimal.dropFirst(33)) == [
                "bugle.yaml:4: kafka.topics.events: names one of the topics made of parked\(reason)",
                "bugle.yaml:5: kafka.topics.results: names one of the topics made of parked\(reason)",
                "bugle.yaml:6: kafka.topics.dead_letters: names one of the topics made of retry\(reason)",
            ])
    }

    @Test func `properties that are set by the program are refused`() {
        let text =
            "kafka: {brokers: \"a:1\", properties: {group.id: x, enable.auto.commit: false}}\n"
        #expect(
            faults(text + minimal.dropFirst(33)) == [
                "bugle.yaml:1: kafka.properties.group.id: set by Bugle itself; use kafka.group",
                "bugle.yaml:1: kafka.properties.enable.auto.commit: set by Bugle itself",
            ])
    }

    @Test func `apps need a gateway and https`() {
        #expect(
            faults("kafka: {brokers: \"a:1\"}\n")
                == ["bugle.yaml:1: apps: missing; name at least one app with its gateways"])
        #expect(
            faults("kafka: {brokers: \"a:1\"}\napps:\n  shop: {}\n")
                == ["bugle.yaml:3: apps.shop: no gateway; add apns, fcm, webpush or expo"])
        let text = """
            apps:
              shop:
                apns: {team_id: short, key_id: ABCDE12345, topic: t, endpoints: {sandbox: "http://x"}}
                fcm: {service_account_file: a, endpoint: "https://x/path"}
            """
        #expect(
            faults("kafka: {brokers: \"a:1\"}\n" + text) == [
                "bugle.yaml:4: apps.shop.apns.team_id: expected 10 capital letters and digits",
                "bugle.yaml:4: apps.shop.apns.key_file: missing; it has no default",
                "bugle.yaml:4: apps.shop.apns.endpoints.sandbox: expected an address that starts with"
                    + " https:// and has no path, its host of 1 to 255 bytes",
                "bugle.yaml:5: apps.shop.fcm.endpoint: expected an address that starts with https://"
                    + " and has no path, its host of 1 to 255 bytes",
            ])
    }
}
