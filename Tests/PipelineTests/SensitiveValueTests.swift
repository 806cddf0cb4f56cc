import Testing

@testable import Pipeline

@Suite struct `Values that have no place in a push` {
    @Test(
        arguments: [
            ("paid with 4111 1111 1111 1111 today", ["a card number"]),
            ("4111111111111111", ["a card number"]), ("5500-0000-0000-0004", ["a card number"]),
            ("4111111111111112", []), ("order 1234567890123", []), ("41111111", []),
            ("to AT611904300234573201.", ["an IBAN"]), ("DE89370400440532013000", ["an IBAN"]),
            ("DE89370400440532013001", []), ("ORDER-AT61", []),
            (
                "x eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.c2ln", ["a JWT"]
            ),
            ("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.", []), ("a.b.c", []), ("", []),
            ("4111111111111111 DE89370400440532013000", ["a card number", "an IBAN"]),
        ] as [(String, [String])])
    func `are recognised`(_ text: String, _ found: [String]) {
        #expect(SensitiveValues.found(in: text) == found)
    }
}
