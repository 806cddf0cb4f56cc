import Testing

@testable import Bugle

@Suite struct `The file with the configuration` {
    private func path(_ option: String?, _ environment: [String: String]) throws -> String {
        try ConfigurationFile.path(
            Arguments(values: option.map { ["config": $0] } ?? [:], positional: []), environment)
    }

    @Test func `is the option's, else the one of the environment`() throws {
        #expect(try path("a.yaml", [:]) == "a.yaml")
        #expect(try path(nil, ["BUGLE_CONFIG": "b.yaml"]) == "b.yaml")
        #expect(try path("a.yaml", ["BUGLE_CONFIG": "b.yaml"]) == "a.yaml")
    }

    @Test func `is asked for under both names when there is none`() {
        for environment in [[:], ["BUGLE_CONFIG": ""]] {
            let failure = #expect(throws: Failure.self) { try path(nil, environment) }
            #expect(failure?.code == .usage)
            #expect(failure?.lines.first?.contains("--config FILE") == true)
            #expect(failure?.lines.first?.contains("BUGLE_CONFIG") == true)
        }
    }
}
