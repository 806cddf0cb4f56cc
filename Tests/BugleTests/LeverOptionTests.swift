import Pipeline
import Testing

@testable import Bugle

@Suite struct `The lever that a command line names` {
    private func lever(_ option: String, _ value: String) throws -> String? {
        try Arguments(values: [option: value], positional: []).lever()?.description
    }

    @Test(arguments: ["chat", "chat.*", "*", "a.b.*"])
    func `is a type, or a star alone or behind the last dot`(pattern: String) throws {
        #expect(try lever("type", pattern) == "type \(pattern)")
    }

    @Test(arguments: ["chat*", "chat.mess*", "*.message", "ch*t", "chat.*.x", "**", "chat.**"])
    func `is refused where a star would be taken for a letter`(pattern: String) {
        let failure = #expect(throws: Failure.self) { try lever("type", pattern) }
        #expect(failure?.code == .usage)
        #expect(
            failure?.lines == [
                "--type \(pattern): a star stands alone or behind the last dot, as in chat.*"
            ])
    }

    @Test func `may be one of earlier words when it is taken back`() throws {
        let arguments = Arguments(values: ["type": "chat*"], positional: [])
        #expect(try arguments.lever(isSaidBefore: true)?.description == "type chat*")
    }
}
