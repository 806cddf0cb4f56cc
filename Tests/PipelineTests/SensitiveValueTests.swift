import Testing

@testable import Pipeline

@Suite struct `Values that have no place in a push` {
    @Test(
        arguments: [
            ("paid with 4111 1111 1111 1111 today", ["a card number"]),
            ("4111111111111111", ["a card number"]), ("5500-0000-0000-0004", ["a card number"]),
            ("4111111111111112", []), ("order 1234567890123", []), ("41111111", []),
            ("to AT611904300234573201.", ["an IBAN"]), ("DE89370400440532013000", ["an IBAN"]),
            ("AT61 1904 3002 3457 3201", ["an IBAN"]),
            ("from DE89 3704 0044 0532 0130 00, thanks", ["an IBAN"]),
            ("to AT61 1904 3002 3457 3201 BKAUATWW", ["an IBAN"]),
            ("NR 4 NO93 8601 1117 947 OK", ["an IBAN"]),
            ("AT61\u{A0}1904\u{A0}3002\u{A0}3457\u{A0}3201", ["an IBAN"]),
            ("AT61 1904 3002 3457 3202", []), ("ORDER NR 12 OF THE 24 DEC 2026", []),
            ("4111 1111 1111 1111 24 Dec", ["a card number"]),
            ("7 4111 1111 1111 1111 2026", ["a card number"]),
            ("12 4111111111111111 13", ["a card number"]),
            ("3782 822463 10005", ["a card number"]), ("411111111111111124", []),
            ("4111 1111 1111 1112 24", []), ("2026 12 01 10 15 30 45", []),
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
