import Glibc

/// Lines of standard input, with something to do while none is there.
struct LineInput {
    private var pending: [UInt8] = []

    /// How often `idle` is called while no line comes, in milliseconds.
    private static let pause: Int32 = 5

    /// The next line; nil at the end of the input.
    mutating func next(idle: () -> Void) -> String? {
        while true {
            if let end = pending.firstIndex(of: 0x0A) {
                let line = String(decoding: pending[..<end], as: UTF8.self)
                pending.removeFirst(end + 1)
                return line
            }
            var descriptor = pollfd(fd: 0, events: Int16(POLLIN), revents: 0)
            if poll(&descriptor, 1, Self.pause) > 0 {
                var chunk = [UInt8](repeating: 0, count: 4096)
                let count = read(0, &chunk, chunk.count)
                if count <= 0 { return nil }
                pending.append(contentsOf: chunk[..<count])
            }
            idle()
        }
    }
}
