import Base
import JSON
import Testing

/// Members of a random object, with repeated names, of which some are written with escapes.
private func randomObject(_ count: Int, _ random: inout SeededRandom) -> String {
    let members = (0..<count).map { number in
        let name = Int.random(in: 0..<max(1, count), using: &random)
        let text = Bool.random(using: &random) ? "\"k\(name)\"" : "\"\\u006b\(name)\""
        return text + ":" + (Int.random(in: 0..<5, using: &random) == 0 ? "null" : "\(number)")
    }
    return "{\(members.joined(separator: ","))}"
}

private func members(_ object: JSONValue) -> [(name: String, value: String)] {
    var members: [(name: String, value: String)] = []
    object.forEachMember {
        members.append(
            (String(decoding: $0, as: UTF8.self), String(decoding: $1.source, as: UTF8.self)))
    }
    return members
}

/// The last member of each name, where it stands.
private func lastMembers(_ object: JSONValue) -> [String] {
    let all = members(object)
    return all.indices.filter { index in
        !all[(index + 1)...].contains { $0.name == all[index].name }
    }.map { "\(all[$0].name)=\(all[$0].value)" }
}

/// Objects of either side of the size from which a table is made.
@Suite struct `Looking up JSON members` {
    @Test(arguments: 0..<60 as Range<UInt64>)
    func `a table finds what a scan finds`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let object = try JSONParser().parse(
            randomObject(Int.random(in: 0...300, using: &random), &random))
        let lookup = JSONLookup(object)
        for number in 0..<320 {
            let name = Array("k\(number)".utf8)
            name.withUnsafeBytes { name in
                #expect(
                    lookup.member(named: name)?.source.baseAddress
                        == object.member(named: name)?.source.baseAddress, "seed \(seed)")
            }
        }
        var found: [String] = []
        object.forEachLastMember {
            found.append(
                String(decoding: $0, as: UTF8.self) + "="
                    + String(decoding: $1.source, as: UTF8.self))
        }
        #expect(found == lastMembers(object), "seed \(seed)")
    }

    @Test func `what is no object has no members`() throws {
        let list = try JSONParser().parse("[\((0..<100).map { "\($0)" }.joined(separator: ","))]")
        #expect(JSONLookup(list).member(named: UnsafeRawBufferPointer(start: nil, count: 0)) == nil)
        list.forEachLastMember { _, _ in Issue.record("a list has no members") }
    }

    @Test(arguments: 0..<60 as Range<UInt64>)
    func `large objects merge as small ones do`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let (first, second) = (JSONParser(), JSONParser())
        let patch = try first.parse(
            randomObject(Int.random(in: 0...200, using: &random), &random))
        // A base is written here, and repeats no name.
        let names = (0..<Int.random(in: 0...200, using: &random)).map { "\"k\($0)\":\"old\"" }
        let base = try second.parse("{\(names.joined(separator: ","))}")
        let writer = ByteWriter()
        JSONMerge.write(base, patchedWith: patch, to: writer)
        let merged = try JSONParser().parse(writer.bytes)
        var expected = Dictionary(
            uniqueKeysWithValues: members(base).map { ($0.name, $0.value) })
        for member in members(patch) {
            expected[member.name] = member.value
        }
        expected = expected.filter { $0.value != "null" }
        let found = members(merged)
        #expect(found.count == expected.count, "seed \(seed)")
        for member in found { #expect(expected[member.name] == member.value, "seed \(seed)") }
    }

    /// By the square of its members this would take many minutes.
    @Test(.timeLimit(.minutes(1)))
    func `an object of very many members takes no longer than its length`() throws {
        let count = 150_000
        let text = "{" + (0..<count).map { "\"k\($0)\":1" }.joined(separator: ",") + "}"
        let (first, second) = (JSONParser(), JSONParser())
        let (patch, base) = (try first.parse(text), try second.parse(text))
        let writer = ByteWriter()
        #expect(!patch.writeMembers(to: writer) { _ in false })
        #expect(writer.count == text.utf8.count - 1)
        writer.removeAll()
        JSONMerge.write(base, patchedWith: patch, to: writer)
        #expect(writer.count == text.utf8.count)
    }
}
