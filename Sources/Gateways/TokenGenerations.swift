internal import Synchronization

/// Numbers for tokens. A push that was refused names the token that it carried, and the credential
/// that hears of it may be the successor of the one that made the token: no two sources of a process
/// may use the same number.
internal enum TokenGenerations {
    private static let sources = Atomic<UInt64>(0)
    /// A source makes fewer tokens than this in any process's life.
    private static let perSource: UInt64 = 1 << 32

    /// The first number of a new source.
    static func next() -> UInt64 {
        sources.wrappingAdd(1, ordering: .relaxed).newValue * perSource
    }
}
