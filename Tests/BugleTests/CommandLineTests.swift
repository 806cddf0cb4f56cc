import Simulator
import Testing

@testable import Bugle

/// getopt_long keeps its state in globals; the parser takes turns, and so may its tests.
@Suite struct CommandLineTests {
    private let options: [Option] = [
        .config, .json, .value("events", "N", "a number"), .value("event-type", "T", "a text"),
    ]

    private func parse(_ words: String...) throws -> Arguments {
        try OptionParser.parse(words, options + [.help])
    }

    private func failure(_ words: String...) -> Failure? {
        do throws(Failure) {
            _ = try OptionParser.parse(words, options + [.help])
            return nil
        } catch {
            return error
        }
    }

    @Test func `options stand before, between and behind words`() throws {
        let arguments = try parse("plan", "--config", "a.yaml", "now", "--json")
        #expect(arguments.positional == ["plan", "now"])
        #expect(arguments.text("config") == "a.yaml")
        #expect(arguments.has("json"))
        #expect(!arguments.has("events"))
    }

    @Test func `an argument may be joined, empty or a dash, and the last of two counts`() throws {
        #expect(try parse("--config=b=c").text("config") == "b=c")
        #expect(try parse("--config", "").text("config") == "")
        #expect(try parse("-").positional == ["-"])
        #expect(try parse("--config", "a", "--config", "b").text("config") == "b")
    }

    @Test func `what follows two dashes is no option`() throws {
        let arguments = try parse("--json", "--", "--config", "-h")
        #expect(arguments.positional == ["--config", "-h"])
        #expect(arguments.has("json"))
    }

    @Test func `an unambiguous beginning is enough`() throws {
        #expect(try parse("--con", "f").text("config") == "f")
        #expect(failure("--event", "1")?.lines == ["--event may mean --events or --event-type"])
    }

    @Test func `an unknown option names the nearest one`() {
        #expect(
            failure("--confg", "x")?.lines == ["--confg: unknown option; did you mean --config?"])
        #expect(failure("--confg=x")?.lines == ["--confg: unknown option; did you mean --config?"])
        #expect(failure("a", "--qqqqqq")?.lines.first?.contains("--help") == true)
        #expect(failure("-q")?.lines.first?.contains("-q") == true)
        #expect(failure("--confg")?.code == .usage)
    }

    @Test func `a missing and a needless argument are told apart`() {
        #expect(failure("--config")?.lines == ["--config needs an argument"])
        #expect(failure("--json=yes")?.lines == ["--json takes no argument"])
    }

    @Test func `numbers have a range`() throws {
        #expect(try parse("--events", "12").integer("events", in: 1...20) == 12)
        #expect(try parse().integer("events", in: 1...20) == nil)
        for text in ["0", "21", "1.5", "many", ""] {
            #expect(throws: Failure.self) {
                try parse("--events", text).integer("events", in: 1...20)
            }
        }
    }

    @Test func `help is short and long`() throws {
        #expect(try parse("-h").has("help"))
        #expect(try parse("--help").has("help"))
    }

    @Test func `every command has a help that names its options`() {
        for command in Program.commands {
            #expect(command.help.hasPrefix("bugle \(command.name)"))
            for option in command.options {
                #expect(command.help.contains("--\(option.name)"))
                #expect(
                    command.synopsis.contains("--\(option.name)"),
                    "\(command.name) --\(option.name)")
            }
        }
        #expect(Set(Program.commands.map { $0.name }).count == Program.commands.count)
    }

    @Test func `text for a terminal holds nothing that a terminal acts on`() {
        #expect("a\u{1B}[2Jb\nc\u{9B}d".printable == "a?[2Jb?c?d")
        #expect("größe".printable == "größe")
    }
}

@Suite struct `What is said of the simulator` {
    @Test(arguments: [(0, "0"), (600, "600"), (1000, "1,000"), (2_419_200, "2,419,200")])
    func `has figures as people write them`(number: Int, text: String) {
        #expect(SimulateCommand.figure(number) == text)
    }

    /// The figures of the simulator's own limits, in the sentences that they belong to.
    @Test func `is what it enforces`() {
        let text = SimulateCommand.details.split(whereSeparator: \.isWhitespace)
            .joined(separator: " ")
        func figure(_ number: Int) -> String { SimulateCommand.figure(number) }
        for sentence in [
            "apns-collapse-id up to \(figure(Limits.apnsCollapseBytes)) bytes",
            "\(figure(Limits.apnsPayloadBytes)) bytes, VoIP \(figure(Limits.apnsVoIPPayloadBytes))",
            "channels \(figure(Limits.apnsBroadcastPayloadBytes))",
            "\(figure(Limits.apnsChannels)) for an app",
            "\(figure(Limits.fcmPayloadBytes)) bytes, topics and conditions "
                + figure(Limits.fcmTopicPayloadBytes),
            "ttl up to 28 days", "\(figure(Limits.fcmConditionTopics)) topics in a condition",
            "at most \(figure(Limits.webPushBodyBytes)) bytes",
            "\(figure(Limits.expoMessages)) recipients in a request",
            "\(figure(Limits.expoPerSecond)) a second",
            "\(figure(Limits.expoPayloadBytes)) bytes of texts, data and image address with "
                + "\(figure(Limits.expoEnvelope)) around them",
            "\(figure(Limits.expoReceipts)) receipts in a question",
        ] { #expect(text.contains(sentence), "\(sentence)") }
    }
}
