// Replies in flat storage: the elements of one reply in the order they arrive, their bytes in one
// buffer. hiredis' reader calls back per element; a callback appends here and nothing else.

internal import Base

/// The elements of the reply that is being read.
internal final class ReplyStorage {
    struct Element {
        var kind: RedisReply.Kind
        /// Length of the text, or number of elements.
        var count: Int32
        /// Where the text starts, or the integer.
        var value: Int64
    }

    // The memory is this object's own: plain pointers, and no run-time check of exclusivity, as
    // no access lasts longer than the statement it stands in. Every element of every reply comes
    // through here.
    @exclusivity(unchecked) private var elements: UnsafeMutablePointer<Element>
    @exclusivity(unchecked) private var capacity: Int
    @exclusivity(unchecked) private(set) var count = 0
    private let bytes = ByteWriter(capacity: RedisLimits.readBytes)

    init() {
        capacity = 256
        elements = .allocate(capacity: capacity)
    }

    deinit { elements.deallocate() }

    var byteCount: Int { bytes.count + count * MemoryLayout<Element>.stride }

    func append(_ kind: RedisReply.Kind, text: UnsafeRawBufferPointer) {
        let start = bytes.count
        bytes.append(text)
        append(Element(kind: kind, count: Int32(clamping: text.count), value: Int64(start)))
    }

    func append(_ element: Element) {
        if count == capacity { grow() }
        elements[count] = element
        count += 1
    }

    /// Forgets everything but the first elements.
    func truncate(to count: Int) {
        self.count = min(count, self.count)
        if count == 0 || elements[0].kind == .array { bytes.removeAll() }
    }

    subscript(index: Int) -> Element {
        precondition(index >= 0 && index < count)
        return elements[index]
    }

    func text(of index: Int) -> UnsafeRawBufferPointer {
        let element = self[index]
        let start = Int(element.value)
        return UnsafeRawBufferPointer(rebasing: bytes.bytes[start..<start + Int(element.count)])
    }

    private func grow() {
        let larger = UnsafeMutablePointer<Element>.allocate(capacity: capacity * 2)
        larger.moveInitialize(from: elements, count: count)
        elements.deallocate()
        elements = larger
        capacity *= 2
    }
}

/// A reply, or an element of one; valid only while the handler that was given it runs.
public struct RedisReply {
    /// What a reply is. Errors of the server reach `failed`, save inside arrays.
    public enum Kind: UInt8, Sendable {
        case none, status, text, integer, error, array
    }

    /// Not retained: the reader that owns it calls the handler, and one is made for every element.
    private let storage: Unmanaged<ReplyStorage>
    private let index: Int

    internal init(_ storage: ReplyStorage, at index: Int) {
        self.init(.passUnretained(storage), at: index)
    }

    private init(_ storage: Unmanaged<ReplyStorage>, at index: Int) {
        self.storage = storage
        self.index = index
    }

    private var element: ReplyStorage.Element { element(at: index) }

    private func element(at index: Int) -> ReplyStorage.Element {
        storage._withUnsafeGuaranteedRef { $0[index] }
    }

    private var bytesOfText: UnsafeRawBufferPointer {
        storage._withUnsafeGuaranteedRef { $0.text(of: index) }
    }

    /// What it is.
    public var kind: Kind { element.kind }

    /// Whether it is the absence of a value.
    public var isNone: Bool { kind == .none }

    /// The bytes of a text, status or error; empty for anything else.
    public var bytes: UnsafeRawBufferPointer {
        switch kind {
        case .text, .status, .error: bytesOfText
        case .none, .integer, .array: UnsafeRawBufferPointer(start: nil, count: 0)
        }
    }

    /// The text of a text, status or error; nil for anything else.
    public var text: String? {
        switch kind {
        case .text, .status, .error: String(decoding: bytesOfText, as: UTF8.self)
        case .none, .integer, .array: nil
        }
    }

    /// The integer, or the one that a text spells; nil for anything else.
    public var integer: Int64? {
        kind == .integer ? element.value : text.flatMap { Int64($0) }
    }

    /// How many elements an array announced; 0 for anything else.
    public var count: Int { kind == .array ? Int(element.count) : 0 }

    /// The elements of an array, in order: all of them, or those that were not given to
    /// `repliedInPart` before.
    public func forEachElement(_ body: (RedisReply) -> Void) {
        guard kind == .array else { return }
        var next = index + 1
        var left = count
        let end = storage._withUnsafeGuaranteedRef { $0.count }
        while left > 0 && next < end {
            body(RedisReply(storage, at: next))
            next = after(next)
            left -= 1
        }
    }

    /// The elements of an array as a list.
    public var elements: [RedisReply] {
        var list: [RedisReply] = []
        forEachElement { list.append($0) }
        return list
    }

    private func after(_ index: Int) -> Int {
        var next = index + 1
        let element = element(at: index)
        if element.kind == .array {
            for _ in 0..<element.count { next = after(next) }
        }
        return next
    }
}
