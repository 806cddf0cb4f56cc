import Base
import Testing

@testable import HTTP2

@Suite struct `An exchange list` {
    @Test(arguments: 0..<20 as Range<UInt64>)
    func `agrees with an array`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        var list = ExchangeList()
        var model: [Exchange] = []
        var outside: [Exchange] = (0..<30).map {
            let exchange = Exchange()
            exchange.sequence = UInt64($0)
            return exchange
        }
        let everything = outside
        for _ in 0..<500 {
            switch Int.random(in: 0..<4, using: &random) {
            case 0 where !outside.isEmpty:
                let exchange = outside.remove(
                    at: Int.random(in: 0..<outside.count, using: &random))
                list.append(exchange)
                model.append(exchange)
            case 1 where !outside.isEmpty:
                let exchange = outside.remove(
                    at: Int.random(in: 0..<outside.count, using: &random))
                list.insertInOrder(exchange)
                let place =
                    model.firstIndex { $0.sequence >= exchange.sequence } ?? model.count
                model.insert(exchange, at: place)
            case 2 where !model.isEmpty:
                let exchange = model.remove(at: Int.random(in: 0..<model.count, using: &random))
                list.remove(exchange)
                outside.append(exchange)
            case 3:
                let popped = list.popFirst()
                #expect(popped === model.first, "seed \(seed)")
                if let popped {
                    model.removeFirst()
                    outside.append(popped)
                }
            default: break
            }
            let count = list.count
            #expect(count == model.count, "seed \(seed)")
            #expect(order(list.first, { $0.next }) == model.map(\.sequence), "seed \(seed)")
            #expect(
                order(list.last, { $0.previous }) == model.map(\.sequence).reversed(),
                "seed \(seed)")
        }
        _ = everything
    }

    private func order(_ start: Exchange?, _ step: (Exchange) -> Exchange?) -> [UInt64] {
        var sequences: [UInt64] = []
        var candidate = start
        while let exchange = candidate {
            sequences.append(exchange.sequence)
            candidate = step(exchange)
        }
        return sequences
    }
}

@Suite struct `The head of an answer` {
    private func read(_ exchange: Exchange, _ name: String, _ value: String) {
        var name = name
        var value = value
        name.withUTF8 { name in
            value.withUTF8 { value in
                exchange.read(
                    header: UnsafeRawBufferPointer(name), value: UnsafeRawBufferPointer(value))
            }
        }
    }

    @Test(arguments: ResponseHeader.allCases)
    func `keeps each header that somebody reads`(header: ResponseHeader) {
        let exchange = Exchange()
        read(exchange, ":status", "201")
        read(exchange, "server", "test")
        read(exchange, header.name.description, "first")
        read(exchange, header.name.description, "second")
        let response = HTTPResponse(of: exchange)
        #expect(response.status == 201)
        #expect(response.text(header) == "first")
        for other in ResponseHeader.allCases where other != header {
            #expect(response.header(other) == nil)
        }
    }

    @Test func `names of the same length are not taken for each other`() {
        let exchange = Exchange()
        for name in ["dxte", "apns-ix", "locatiox", "retry-aftex", "content-typx", "x", ""] {
            read(exchange, name, "wrong")
        }
        #expect(ResponseHeader.allCases.allSatisfy { exchange.field($0) == nil })
    }

    @Test func `a second status forgets the informational head`() {
        let exchange = Exchange()
        read(exchange, ":status", "103")
        read(exchange, "link", "early")
        read(exchange, ":status", "200")
        #expect(exchange.status == 200)
        #expect(exchange.field(.link) == nil)
    }

    @Test func `long values and long lists are cut, the status stays`() {
        let exchange = Exchange()
        read(exchange, ":status", "400")
        read(exchange, "location", String(repeating: "x", count: 5000))
        #expect(exchange.field(.location)?.count == Limits.responseFieldBytesMax)
        for _ in 0..<20 { read(exchange, "junk", String(repeating: "x", count: 1000)) }
        read(exchange, "retry-after", "7")
        #expect(exchange.field(.retryAfter) == nil)
        #expect(exchange.status == 400)
    }

    @Test func `a body is kept up to its limit`() {
        let exchange = Exchange()
        let chunk = [UInt8](repeating: 65, count: 40_000)
        chunk.withUnsafeBytes { exchange.appendBody($0) }
        #expect(!HTTPResponse(of: exchange).isBodyTruncated)
        chunk.withUnsafeBytes { exchange.appendBody($0) }
        #expect(HTTPResponse(of: exchange).isBodyTruncated)
        #expect(HTTPResponse(of: exchange).body.count == Limits.responseBodyBytesMax)
    }
}
