import Base
import Kafka
import Testing

@testable import Bugle

/// Which dead letters are meant, and which of them can be replayed.
@Suite struct DeadLettersTests {
    private let events: Set<String> = ["push.events"]

    private func letter(
        _ offset: Int64, code: String = "no_route", type: String? = "order.shipped",
        at time: Int64 = 1_000
    ) -> StoredLetter {
        var letter = StoredLetter(
            place: TopicPartition("push.events-dlt", 2), offset: offset, time: UnixMillis(time))
        letter.origin = (TopicPartition("push.events", 2), offset + 100)
        letter.code = code
        letter.type = type
        letter.value = [0x7B, 0x7D]
        return letter
    }

    private func select(
        _ letters: [StoredLetter], _ filter: LetterFilter = LetterFilter(group: "bugle"),
        limit: Int = 10,
        forReplay: Bool = true
    ) -> LetterSelection {
        var selection = LetterSelection(
            filter, limit: limit, events: events, forReplay: forReplay)
        for letter in letters { selection.add(letter) }
        return selection
    }

    @Test func `code, type and time choose`() {
        let letters = [
            letter(1), letter(2, code: "not_json", type: nil), letter(3, type: "chat.message"),
            letter(4, at: 2_000), letter(5, at: 3_000),
        ]
        func offsets(_ filter: LetterFilter) -> [Int64] {
            select(letters, filter).letters.map(\.offset)
        }
        #expect(offsets(LetterFilter(group: "bugle")) == [1, 2, 3, 4, 5])
        #expect(offsets(LetterFilter(group: "bugle", code: "not_json")) == [2])
        #expect(offsets(LetterFilter(group: "bugle", type: "chat.message")) == [3])
        #expect(offsets(LetterFilter(group: "bugle", since: UnixMillis(2_000))) == [4, 5])
        #expect(
            offsets(
                LetterFilter(group: "bugle", since: UnixMillis(2_000), until: UnixMillis(3_000)))
                == [4])
    }

    @Test func `those of another installation on the same topic are left alone`() {
        var (own, others) = (letter(2), letter(3))
        own.group = "bugle"
        others.group = "other"
        let letters = [letter(1), own, others]
        #expect(select(letters).letters.map(\.offset) == [1, 2])
        #expect(select(letters, forReplay: false).matching == 2)
    }

    @Test func `the limit keeps the first and counts all`() {
        let selection = select([letter(1), letter(2), letter(3)], limit: 2)
        #expect(selection.letters.map(\.offset) == [1, 2])
        #expect(selection.matching == 3)
    }

    @Test func `what cannot be replayed is left out of a replay, and listed all the same`() {
        var cut = letter(1)
        cut.isCut = true
        var empty = letter(2)
        empty.value = nil
        var stray = letter(3)
        stray.origin = (TopicPartition("push.events-retry-10s", 2), 5)
        var unknown = letter(4)
        unknown.origin = nil
        let letters = [cut, empty, stray, unknown, letter(5)]
        let selection = select(letters)
        #expect(selection.letters.map(\.offset) == [5])
        #expect(selection.hindered.values.reduce(0, +) == 4)
        #expect(select(letters, forReplay: false).letters.count == 5)
    }

    @Test func `an event is replayed once, although it has several dead letters`() {
        var again = letter(7)
        again.replayOf = letter(1).root
        let selection = select([letter(1), letter(1), letter(2), again])
        #expect(selection.letters.map(\.offset) == [1, 2])
        #expect(selection.repeated == 2)
    }

    @Test func `a replay names the first event of its chain`() {
        #expect(letter(1).root == "push.events-2-101")
        var again = letter(7)
        again.replayOf = "push.events-2-101"
        #expect(again.root == "push.events-2-101")
    }
}
