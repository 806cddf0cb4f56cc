// Notes in a user's entry: short texts under a name that are worth something for a while, such as
// that a burst of events has begun. They are no part of the index's truth: a store that lost them
// lost a convenience, and a rebuild brings none back.

internal import Base

/// The notes of the index in memory. A value.
internal struct NoteBook: Sendable {
    private struct Key: Hashable {
        let app: String
        let userID: String
        let name: String
    }

    private struct Note {
        let text: String
        let keptUntil: UnixMillis
    }

    private var notes: [Key: Note] = [:]
    /// At how many notes the next sweep takes out those whose time is over.
    private var sweepAt = Self.sweepMin
    private static let sweepMin = 1_024

    /// The text of a note; nil when there is none any more.
    func text(_ name: String, app: String, userID: String, at now: UnixMillis) -> String? {
        guard let note = notes[Key(app: app, userID: userID, name: name)], note.keptUntil > now
        else { return nil }
        return note.text
    }

    /// Removes all notes of a user.
    mutating func erase(app: String, userID: String) {
        notes = notes.filter { $0.key.app != app || $0.key.userID != userID }
    }

    /// Writes a note over the last one of its name. Amortised O(1).
    mutating func write(
        _ name: String, _ text: String, app: String, userID: String, until: UnixMillis,
        at now: UnixMillis
    ) {
        notes[Key(app: app, userID: userID, name: name)] = Note(text: text, keptUntil: until)
        guard notes.count >= sweepAt else { return }
        notes = notes.filter { $0.value.keptUntil > now }
        sweepAt = max(notes.count * 2, Self.sweepMin)
    }
}
