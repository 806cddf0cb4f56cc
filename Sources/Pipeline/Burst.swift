// What an event carries that was sent for others.

internal import Base
internal import JSON

/// The burst that a push stands for. It is fixed when the event leaves its window, and travels with
/// it through the retry topics.
internal final class Burst {
    /// How many events the burst had when it was sent, for `{{count}}`: those that were folded, the
    /// carrier, and the first one if that was sent by itself.
    let count: Int64
    /// How many were folded into the carrier.
    let foldedCount: Int64
    /// The ids of the first of them, a JSON array.
    let names: [UInt8]
    /// Those whose offsets complete with the carrier's.
    var folded: [HeldEvent]

    /// An event that was in a window by itself, or leads one.
    init() {
        count = 1
        foldedCount = 0
        names = []
        folded = []
    }

    /// The members of a window.
    init(_ folded: [HeldEvent], isLed: Bool) {
        self.folded = folded
        foldedCount = Int64(folded.count)
        count = foldedCount + (isLed ? 2 : 1)
        let bytes = ByteWriter()
        bytes.append(0x5B)
        for (index, event) in folded.prefix(WindowLimits.foldedNames).enumerated() {
            if index > 0 { bytes.append(0x2C) }
            bytes.append(jsonString: event.id)
        }
        bytes.append(0x5D)
        names = folded.isEmpty ? [] : bytes.array
    }

    /// What the headers of a retry topic say.
    init(count: Int64, foldedCount: Int64, names: [UInt8]) {
        self.count = count
        self.foldedCount = foldedCount
        self.names = names
        folded = []
    }

    /// Writes the members of a result.
    func write(_ object: inout JSONObjectWriter) {
        guard foldedCount > 0 else { return }
        names.withUnsafeBytes { object.raw("folded", $0) }
        object.integer("folded_count", foldedCount)
    }
}
