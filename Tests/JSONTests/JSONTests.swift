import Base
import Glibc
import JSON
import Testing

private func tree(_ value: JSONValue) -> Tree {
    switch value.kind {
    case .null: return .null
    case .bool: return .bool(value.bool == true)
    case .number: return .number(String(decoding: value.source, as: UTF8.self))
    case .string: return .string(value.stringBytes.map { Array($0) } ?? [])
    case .array:
        var elements: [Tree] = []
        value.forEachElement { elements.append(tree($0)) }
        return .array(elements)
    case .object:
        var members: [Tree.Member] = []
        value.forEachMember { members.append(.init(name: Array($0), value: tree($1))) }
        return .object(members)
    }
}

private func parsed(_ bytes: [UInt8], by parser: JSONParser) -> Result<Tree, JSONError> {
    do throws(JSONError) { return .success(tree(try parser.parse(bytes))) } catch {
        return .failure(error)
    }
}

private func refusal(_ text: String, depth: Int = 64) -> JSONError? {
    do throws(JSONError) {
        _ = try JSONParser(maximumDepth: depth).parse(text)
        return nil
    } catch { return error }
}

@Suite struct `Reading JSON` {
    @Test(arguments: 0..<20 as Range<UInt64>)
    func `random documents read as the grammar says`(seed: UInt64) {
        var documents = RandomDocument(seed: seed)
        let parser = JSONParser()
        for round in 0..<500 {
            let bytes = round % 4 == 0 ? documents.valid() : documents.edited()
            let expected = ReferenceParser.parse(bytes)
            let actual = parsed(bytes, by: parser)
            let text = String(decoding: bytes, as: UTF8.self)
            #expect((try? actual.get()) == expected, "seed \(seed): \(actual) for \(text)")
        }
    }

    @Test(arguments: 0..<10 as Range<UInt64>)
    func `compact writing keeps the meaning and removes the white space`(seed: UInt64) throws {
        var documents = RandomDocument(seed: seed)
        let (first, second) = (JSONParser(), JSONParser())
        let (writer, again) = (ByteWriter(), ByteWriter())
        for _ in 0..<200 {
            let value = try first.parse(documents.valid())
            writer.removeAll()
            value.writeCompact(to: writer)
            let copy = try second.parse(writer.bytes)
            #expect(tree(copy) == tree(value), "seed \(seed)")
            again.removeAll()
            copy.writeCompact(to: again)
            #expect(again.array == writer.array, "seed \(seed)")
        }
    }

    @Test func `a document cut at any byte is refused`() {
        let text = #" { "id" : "o-1\n\ud83c\udf89" , "n" : [ 1.50 , -2e3 , true , null , {} ] } "#
        let bytes = Array(text.utf8)
        let parser = JSONParser()
        for length in 0..<(bytes.count - 1) {
            let cut = Array(bytes[..<length])
            if let tree = try? parsed(cut, by: parser).get() { Issue.record("\(length): \(tree)") }
        }
        #expect((try? parsed(bytes, by: parser).get()) == ReferenceParser.parse(bytes))
    }

    @Test func `poison says what is wrong and where`() {
        #expect(refusal("") == .empty)
        #expect(refusal(" \n ") == .empty)
        #expect(refusal("not json") == .notJSON(offset: 0))
        #expect(refusal("{\"id\":1") != nil)
        #expect(refusal("[1,2}") != nil)
        #expect(refusal("{\"a\":01}") == .badNumber(offset: 5))
        #expect(refusal("[1, NaN]") == .notJSON(offset: 4))
        #expect(refusal("[\"\\ud800\"]") == .badString(offset: 1))
        #expect(refusal("[\"\\udc00\"]") == .badString(offset: 1))
        #expect(refusal("{\"\\udc00\":1}") == .badString(offset: 1))
        #expect(refusal("[\"a\nb\"]") == .badString(offset: nil))
        #expect(refusal("[\"a") == .badString(offset: nil))
        #expect(refusal("{} x") == .trailingBytes(offset: 3))
        #expect(refusal("\"a\" \"b\"") == .trailingBytes(offset: 4))
        #expect(refusal("{\"a\":\"b\":1}") != nil)
        #expect(refusal("[[[]]]", depth: 2) == .tooDeep(limit: 2, offset: 2))
        #expect(refusal("[[{}]]", depth: 3) == nil)
        let bytes = [UInt8](repeating: 0xFF, count: 100)
        #expect(parsed(bytes, by: JSONParser()) == .failure(.notUTF8))
        let bombs = ["[", "{\"a\":", "[[],"].map { String(repeating: $0, count: 1 << 18) }
        for bomb in bombs { #expect(refusal(bomb) != nil) }
        let nested = String(repeating: "[", count: 1 << 20) + String(repeating: "]", count: 1 << 20)
        #expect(refusal(nested) == .tooDeep(limit: 64, offset: 64))
        #expect(
            parsed([UInt8](repeating: 0x20, count: 11), by: JSONParser(maximumBytes: 10))
                == .failure(.tooLarge(limit: 10)))
    }

    @Test func `descriptions name the place and quote nothing`() {
        #expect(JSONError.notJSON(offset: 17).description == "not JSON at byte 17")
        #expect(JSONError.notJSON(offset: nil).description == "not JSON")
        #expect(
            JSONError.tooDeep(limit: 64, offset: 64).description
                == "nested deeper than 64 at byte 64")
    }

    @Test func `roots of every kind are read`() throws {
        let parser = JSONParser()
        #expect(try parser.parse(" 12 ").int64 == 12)
        #expect(try parser.parse("\"a\\tb\"").string == "a\tb")
        #expect(try parser.parse("\"\"").string == "")
        #expect(try parser.parse("true").bool == true)
        #expect(try parser.parse("null").isNull)
        #expect(try parser.parse("[]").count == 0)
    }

    @Test func `numbers keep every digit`() throws {
        let parser = JSONParser()
        let text = "[9007199254740993,1.50,-0,18446744073709551615,-9223372036854775808,1e2,0.1]"
        let value = try parser.parse(text)
        var integers: [Int64?] = []
        var doubles: [Double?] = []
        value.forEachElement {
            integers.append($0.int64)
            doubles.append($0.double)
        }
        #expect(integers == [9_007_199_254_740_993, nil, 0, nil, .min, nil, nil])
        #expect(
            doubles[1...] == [
                1.5, -0.0, 18_446_744_073_709_551_616, -9223372036854775808, 100, 0.1,
            ])
        let writer = ByteWriter()
        value.writeCompact(to: writer)
        #expect(writer.text == text)
    }

    @Test func `members are found by name, the last one of a repeated name`() throws {
        let parser = JSONParser()
        let value = try parser.parse(
            #"{"a":1,"bb":{"a":[2,{"a":9}],"c":3},"a":4,"":5,"k\u0065y":"v","n":null}"#)
        #expect(value["a" as StaticString]?.int64 == 4)
        #expect(value["a" as String]?.int64 == 4)
        #expect(value["bb" as String]?["c" as String]?.int64 == 3)
        #expect(value["" as String]?.int64 == 5)
        #expect(value["key" as StaticString]?.string == "v")
        #expect(value["n" as StaticString]?.isNull == true)
        #expect(value["none" as StaticString] == nil)
        #expect(value["a" as StaticString]?["a" as StaticString] == nil)
        #expect(value.count == 6)
        let inner = try #require(value["bb" as StaticString])
        #expect(String(decoding: inner.source, as: UTF8.self) == #"{"a":[2,{"a":9}],"c":3}"#)
    }

    @Test func `input that ends where its page ends is read without touching the next page`() throws
    {
        let page = Int(sysconf(Int32(_SC_PAGESIZE)))
        let memory = mmap(
            nil, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        let base = try #require(memory)
        try #require(base != MAP_FAILED)
        defer { munmap(base, 2 * page) }
        try #require(mprotect(base + page, page, PROT_NONE) == 0)
        let document = Array(#"{"id":"o-1","n":[1,2,3]}"#.utf8)
        let start = base + page - document.count
        start.copyMemory(from: document, byteCount: document.count)
        let value = try JSONParser().parse(
            UnsafeRawBufferPointer(start: start, count: document.count))
        #expect(value["n" as StaticString]?.count == 3)
    }

    @Test func `a value of an older document traps`() async {
        await #expect(processExitsWith: .failure) {
            let parser = JSONParser()
            let value = try parser.parse("[1]")
            _ = try parser.parse("[2]")
            _ = value.count
        }
    }

    @Test func `a parser forgets the longer document it read before`() throws {
        let parser = JSONParser()
        _ = try parser.parse(#"{"a":{"b":[1,2,3]}}"#)
        for text in [#"{"a":{"b":[1"#, #"{"a":{"b":[1]}"#, #"{"a":1"#] {
            #expect(throws: JSONError.self) { _ = try parser.parse(text) }
        }
        #expect(try parser.parse("[7]").source.count == 3)
    }
}

@Suite struct `Writing JSON objects` {
    @Test func `members are separated and quoted`() throws {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.string("a", "x\"y")
        object.integer("b", -5)
        object.bool("c", true)
        object.null("d")
        object.string("e", orNull: nil)
        object.integer("f", orNull: nil)
        object.literal("g", "plain")
        object.value("h", try JSONParser().parse(" [ 1.0 , {} ] "))
        object.uuid("i", UUIDBytes(high: 1, low: 2))
        object.name("j")
        var inner = JSONObjectWriter(bytes)
        inner.end()
        object.end()
        #expect(
            bytes.text == #"{"a":"x\"y","b":-5,"c":true,"d":null,"e":null,"f":null,"g":"plain","#
                + #""h":[1.0,{}],"i":"00000000-0000-0001-0000-000000000002","j":{}}"#)
    }
}

@Suite struct `JSON members by a list of names` {
    private let names = JSONNames(["a", "b", "id", "user_id", "", "title", "tilte"])

    @Test func `they are found in one pass, the last of a repeated name`() throws {
        let parser = JSONParser()
        let root = try parser.parse(
            #"{"id":7,"a":"x","":null,"other":{"b":1},"a":"y","user\u005fid":"u","tilte":1.5}"#)
        let members = JSONMembers(of: root, named: names)
        #expect(members[0]?.string == "y")
        #expect(members[1] == nil)
        #expect(members.int64(2) == 7)
        #expect(members.stringBytes(2) == nil)
        #expect(members.stringBytes(3).map { Array($0) } == Array("u".utf8))
        #expect(members[4]?.isNull == true && !members.has(4))
        #expect(!members.has(5) && members.has(6))
        #expect(members.int64(6) == nil)
        #expect(members.numberText(6).map { Array($0) } == Array("1.5".utf8))
        #expect(JSONMembers(of: try parser.parse("[1]"), named: names)[0] == nil)
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func `they are the ones that a search for each finds`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let parser = JSONParser()
        let alphabet = ["a", "b", "id", "user_id", "", "title", "tilte", "c", "di", "titel"]
        let parts = (0..<Int.random(in: 0...30, using: &random)).map { number in
            "\"\(alphabet.randomElement(using: &random) ?? "")\":\(number)"
        }
        let root = try parser.parse("{\(parts.joined(separator: ","))}")
        let members = JSONMembers(of: root, named: names)
        for (place, name) in names.names.enumerated() {
            #expect(members[place]?.int64 == root[name]?.int64, "seed \(seed), \(name)")
        }
    }

    @Test func `members are written without the ones that are left out or overridden`() throws {
        let parser = JSONParser()
        let root = try parser.parse(#"{"a": 1, "b" : [ 2 ], "x\n": {"c" : "d"}, "a": 3}"#)
        let bytes = ByteWriter()
        let leftOut = root.writeMembers(to: bytes) { $0.elementsEqual("b".utf8) }
        #expect(leftOut)
        #expect(bytes.text == #","x\n":{"c":"d"},"a":3"#)
        bytes.removeAll()
        #expect(!root.writeMembers(to: bytes) { _ in false })
        #expect(bytes.text == #","b":[2],"x\n":{"c":"d"},"a":3"#)
    }
}
