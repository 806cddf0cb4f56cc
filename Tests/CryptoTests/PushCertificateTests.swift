import Base
import Crypto
import Glibc
import Testing

@Suite struct `A push certificate` {
    private func file(_ text: String) throws -> String {
        var path = Array("/tmp/bugle-push-XXXXXX".utf8CString)
        let fd = mkstemp(&path)
        defer { close(fd) }
        let bytes = Array(text.utf8)
        #expect(write(fd, bytes, bytes.count) == bytes.count)
        return String(decoding: path.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    @Test func `says for which app and topics it is, and where`() throws {
        let authority = try CertificateAuthority()
        let topics = [
            "com.example.app", "com.example.app.voip", "com.example.app.complication",
            "com.example." + String(repeating: "x", count: 200),
        ]
        let issued = try authority.issuePushCertificate(
            bundleID: "com.example.app", topics: topics, isForSandboxOnly: true)
        let (certificate, key) = (try file(issued.certificatePEM), try file(issued.keyPEM))
        defer {
            unlink(certificate)
            unlink(key)
        }
        let read = try PushCertificate(
            of: TLSContext.Identity(certificateFile: certificate, keyFile: key))
        #expect(read.bundleID == "com.example.app")
        #expect(read.topics == topics)
        #expect(read.isForSandboxOnly)
        #expect(read.fingerprint.count == 8)
    }

    @Test func `without a list of topics is for its bundle id, in both environments`() throws {
        let issued = try CertificateAuthority().issuePushCertificate(
            bundleID: "com.example.app", topics: [])
        let (certificate, key) = (try file(issued.certificatePEM), try file(issued.keyPEM))
        defer {
            unlink(certificate)
            unlink(key)
        }
        let read = try PushCertificate(
            of: TLSContext.Identity(certificateFile: certificate, keyFile: key))
        #expect(read.topics == ["com.example.app"] && !read.isForSandboxOnly)
    }

    @Test func `and a key that is another's are refused, with the files' names`() throws {
        let authority = try CertificateAuthority()
        let one = try authority.issuePushCertificate(bundleID: "a", topics: ["a"])
        let other = try authority.issuePushCertificate(bundleID: "b", topics: ["b"])
        let (certificate, key) = (try file(one.certificatePEM), try file(other.keyPEM))
        defer {
            unlink(certificate)
            unlink(key)
        }
        for (file, keyFile, words) in [
            (certificate, key, "does not belong"), ("/nonexistent", key, "/nonexistent"),
            (certificate, "/nonexistent", "/nonexistent"), (key, key, key),
        ] {
            let error = #expect(throws: TLSError.self) {
                _ = try TLSContext.Identity(certificateFile: file, keyFile: keyFile)
            }
            #expect(error?.kind == .material && error?.text.contains(words) == true)
        }
    }
}
