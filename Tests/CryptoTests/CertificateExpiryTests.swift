import Base
import Crypto
import Glibc
import Testing

@Suite struct `The end of a certificate` {
    private func file(_ text: String) throws -> String {
        var path = Array("/tmp/bugle-pem-XXXXXX".utf8CString)
        let fd = mkstemp(&path)
        defer { close(fd) }
        let bytes = Array(text.utf8)
        #expect(write(fd, bytes, bytes.count) == bytes.count)
        return String(decoding: path.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    @Test func `is told, and nothing of a file that holds none`() throws {
        let pem = try file(try CertificateAuthority().certificatePEM)
        defer { unlink(pem) }
        let left = try #require(CertificateExpiry.timeLeft(path: pem))
        #expect(left > .hours(364 * 24) && left <= .hours(365 * 24))
        let other = try file("no certificate")
        defer { unlink(other) }
        #expect(CertificateExpiry.timeLeft(path: other) == nil)
        #expect(CertificateExpiry.timeLeft(path: "/nonexistent") == nil)
    }
}
