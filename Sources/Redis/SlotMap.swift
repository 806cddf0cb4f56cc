// Which node serves which slot, as a node of a cluster tells it. Pure.

/// The answer to `CLUSTER SLOTS`.
internal struct SlotMap: Equatable {
    struct Range: Equatable {
        var slots: ClosedRange<UInt16>
        var master: RedisEndpoint
    }

    /// The ranges that have a master, in the order of the answer.
    var ranges: [Range]

    init(_ ranges: [Range]) { self.ranges = ranges }

    /// Reads the answer of the node that was reached at `source`; nil when it is not one.
    init?(_ reply: RedisReply, from source: RedisEndpoint) {
        guard reply.kind == .array else { return nil }
        ranges = []
        for entry in reply.elements {
            let parts = entry.elements
            guard parts.count >= 3, let first = parts[0].integer, let last = parts[1].integer,
                first >= 0, last < RedisSlot.count, first <= last
            else { return nil }
            let master = parts[2].elements
            guard master.count >= 2, let port = master[1].integer, let port = UInt16(exactly: port)
            else { return nil }
            // A node that does not know its own name leaves it out: the one it was reached by.
            let named = master[0].text ?? ""
            let host = named.isEmpty ? source.host : named
            guard host != "?", port != 0 else { continue }
            ranges.append(
                Range(
                    slots: UInt16(first)...UInt16(last),
                    master: RedisEndpoint(host: host, port: port)))
        }
    }

    /// Slots that nobody serves.
    var uncovered: Int {
        var isCovered = [Bool](repeating: false, count: RedisSlot.count)
        for range in ranges { for slot in range.slots { isCovered[Int(slot)] = true } }
        return isCovered.count { !$0 }
    }
}

/// Where a redirection points: `<slot> <host>:<port>`.
internal struct Redirection: Equatable {
    var slot: RedisSlot
    var endpoint: RedisEndpoint

    /// Reads the text behind `MOVED` or `ASK`, sent by the node at `source`.
    init?(_ text: String?, from source: RedisEndpoint) {
        guard let words = text?.split(separator: " "), words.count == 2,
            let number = UInt16(words[0]), number < RedisSlot.count,
            let colon = words[1].lastIndex(of: ":"),
            let port = UInt16(words[1][words[1].index(after: colon)...]), port != 0
        else { return nil }
        let host = words[1][..<colon]
        slot = RedisSlot(number: number)
        endpoint = RedisEndpoint(host: host.isEmpty ? source.host : String(host), port: port)
    }
}
