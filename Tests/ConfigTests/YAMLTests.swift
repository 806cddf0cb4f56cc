import Base
import Config
import Glibc
import Testing

@Suite struct `YAML that is not accepted` {
    @Test func `broken text is answered with its line`() {
        #expect(
            faults("kafka:\n\tbrokers: a:1\n") == [
                "bugle.yaml:2: a tab cannot indent YAML; use spaces"
            ])
        let indented = faults("kafka:\n  brokers: a\n   group: b\n")
        #expect(indented.count == 1 && indented[0].hasPrefix("bugle.yaml:3: not valid YAML: "))
        #expect(faults("a: [1, 2\n").first?.hasPrefix("bugle.yaml:2: not valid YAML: ") == true)
        #expect(faults("a: \u{1}").first?.contains("not valid YAML") == true)
    }

    @Test func `emptiness, lists and second documents are refused`() {
        let empty = ["bugle.yaml:1: empty; at least kafka and apps are needed"]
        for text in ["", "\n# only a comment\n", "---\n", "~\n"] { #expect(faults(text) == empty) }
        #expect(faults("- a\n").contains("bugle.yaml:1: expected a mapping, found a list"))
        #expect(
            faults(minimal + "---\na: 1\n")
                == ["bugle.yaml:6: a second document; one file holds one configuration"])
    }

    @Test func `a key given twice is refused`() {
        #expect(faults("a: 1\nb: 2\na: 3\n") == ["bugle.yaml:3: a: given twice, first in line 1"])
        #expect(faults("? [a]\n: 1\n") == ["bugle.yaml:1: a key must be a single value"])
    }

    @Test func `tags, bombs and depth are refused`() {
        #expect(faults("a: !!str 1\n") == ["bugle.yaml:1: tags are not supported"])
        var bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
        for level in 1...9 {
            let alias = Array(repeating: "*a\(level - 1)", count: 9).joined(separator: ", ")
            bomb += "a\(level): &a\(level) [\(alias)]\n"
        }
        #expect(faults(bomb) == ["bugle.yaml:5: more than 20000 values"])
        #expect(faults("a: &a [*a]\n") == ["bugle.yaml:1: an alias without an anchor before it"])
        let deep = String(repeating: "[", count: 5000)
        #expect(faults("a: " + deep) == ["bugle.yaml:1: nested deeper than 32"])
        let large = "a: " + String(repeating: "x", count: 1 << 20)
        #expect(faults(large) == ["bugle.yaml:1: larger than 1048576 bytes"])
    }

    @Test func `text cut anywhere or with any byte never crashes`() {
        let bytes = Array(minimal.utf8)
        var random = SeededRandom(seed: 3)
        for _ in 0..<2000 {
            var copy = bytes
            for _ in 0..<3 {
                let place = Int.random(in: 0..<copy.count, using: &random)
                copy[place] =
                    Array("{}[]:,&*!|>'\"%@`#- \n\t~?".utf8).randomElement(using: &random) ?? 0
            }
            copy.removeLast(Int.random(in: 0..<copy.count, using: &random))
            _ = faults(String(decoding: copy, as: UTF8.self))
        }
    }
}

@Suite struct `Loading files` {
    /// A folder of its own that is removed at the end.
    private final class Folder {
        let path: String

        init() throws {
            var template = Array("/tmp/bugle-config-XXXXXX".utf8CString)
            let made = mkdtemp(&template) != nil
            try #require(made)
            path = template.withUnsafeBufferPointer { buffer in
                buffer.baseAddress.map { String(cString: $0) } ?? ""
            }
        }

        func write(_ name: String, _ text: String) throws {
            let file = try #require(fopen("\(path)/\(name)", "w"))
            fputs(text, file)
            fclose(file)
        }

        deinit {
            for name in ["bugle.yaml", "sa.json"] { unlink("\(path)/\(name)") }
            rmdir(path)
        }
    }

    @Test func `paths start at the file's folder and must be readable`() throws {
        let folder = try Folder()
        let text =
            "kafka: {brokers: \"a:1\"}\napps:\n  shop: {fcm: {service_account_file: sa.json}}\n"
        try folder.write("bugle.yaml", text)
        let path = "\(folder.path)/bugle.yaml"
        let expected =
            "\(path):3: apps.shop.fcm.service_account_file: cannot read \(folder.path)/sa.json: "
            + "No such file or directory"
        do throws(ConfigurationErrors) {
            _ = try Configuration.load(path: path, environment: [:])
            Issue.record("loaded")
        } catch {
            #expect(error.description == expected)
        }
        try folder.write("sa.json", "{}\n\n")
        let configuration = try Configuration.load(path: path, environment: [:])
        #expect(configuration.apps[0].fcm?.serviceAccount == .file("\(folder.path)/sa.json"))
        #expect(try configuration.apps[0].fcm?.serviceAccount.read().exposed == "{}")
    }

    @Test func `files of Kafka's properties do so too`() throws {
        let folder = try Folder()
        try folder.write("sa.json", "{}")
        let text = """
            kafka:
              brokers: a:1
              properties:
                ssl.ca.location: FILE
                ssl.crl.location: /etc/hosts
            apps:
              shop: {fcm: {service_account_file: sa.json}}
            """
        func load(_ file: String) throws -> [String] {
            try folder.write("bugle.yaml", text.replacing("FILE", with: file))
            let path = "\(folder.path)/bugle.yaml"
            return try Configuration.load(path: path, environment: [:]).kafka.properties.map {
                try $0.value.read().exposed
            }
        }
        #expect(try load("sa.json") == ["\(folder.path)/sa.json", "/etc/hosts"])
        #expect(try load("probe") == ["probe", "/etc/hosts"])
        #expect(throws: ConfigurationErrors.self) { try load("ca.pem") }
    }

    @Test func `a missing file is one line`() {
        do throws(ConfigurationErrors) {
            _ = try Configuration.load(path: "/nowhere/bugle.yaml", environment: [:])
            Issue.record("loaded")
        } catch {
            #expect(error.description == "/nowhere/bugle.yaml: No such file or directory")
        }
    }
}
