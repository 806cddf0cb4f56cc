import Base
import Compression
import Testing

@Suite struct `Compressing bodies` {
    private func compressed(_ bytes: [UInt8], _ writer: GzipWriter) throws -> [UInt8] {
        let output = ByteWriter()
        let isDone = bytes.withUnsafeBytes { writer.compress($0, into: output) }
        #expect(isDone)
        return output.array
    }

    private func plain(_ bytes: [UInt8], limit: Int = 1 << 20) -> [UInt8]? {
        bytes.withUnsafeBytes { Gzip.decompressed($0, limit: limit) }
    }

    @Test func `what goes in comes out, again and again`() throws {
        let writer = try #require(GzipWriter())
        var random = SeededRandom(seed: 7)
        for count in [0, 1, 100, 4096, 70_000] {
            let noise = (0..<count).map { _ in UInt8(truncatingIfNeeded: random.next()) }
            let text = Array(repeating: Array("{\"to\":\"x\"},".utf8), count: count / 11).flatMap(
                \.self)
            for bytes in [noise, text] {
                let packed = try compressed(bytes, writer)
                #expect(packed.starts(with: [0x1F, 0x8B]))
                #expect(plain(packed) == bytes)
            }
            if count > 4000 { #expect(try compressed(text, writer).count < text.count / 10) }
        }
    }

    @Test func `it is appended`() throws {
        let writer = try #require(GzipWriter())
        let output = ByteWriter()
        output.append("before")
        let isDone = [UInt8](repeating: 1, count: 10).withUnsafeBytes {
            writer.compress($0, into: output)
        }
        #expect(isDone && output.text.hasPrefix("before"))
        #expect(plain(Array(output.array.dropFirst(6)))?.count == 10)
    }

    @Test func `what is no gzip, is cut or is too large is refused`() throws {
        let writer = try #require(GzipWriter())
        let packed = try compressed([UInt8](repeating: 65, count: 5000), writer)
        #expect(plain([1, 2, 3]) == nil && plain([]) == nil)
        #expect(plain(Array(packed.dropLast(3))) == nil)
        #expect(plain(packed, limit: 4999) == nil)
        #expect(plain(packed, limit: 5000)?.count == 5000)
    }
}
