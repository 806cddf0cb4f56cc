import Base
import Testing

@Suite struct Secrets {
    @Test func `a secret never shows in a description`() {
        let secret = Secret("hunter2")
        var dumped = ""
        dump(secret, to: &dumped)
        for text in ["\(secret)", String(reflecting: secret), "\([secret])", dumped] {
            #expect(!text.contains("hunter2"))
            #expect(text.contains("***"))
        }
        #expect(secret.exposed == "hunter2")
    }
}
