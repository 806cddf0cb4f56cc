internal import CNGHTTP2
internal import Glibc

/// Memory for one nghttp2 session: what a stream has freed serves the next one.
///
/// nghttp2 allocates a handful of small blocks for every request and frees them with its stream.
/// Streams end in bursts of a hundred, more than the allocator's own cache of freed blocks holds,
/// so that each of them takes its slow path. Here freed blocks wait in one list for each size, up
/// to a bound; what is larger, or too many, comes from and goes to the allocator.
///
/// Confined to the loop of the session; must outlive it.
final class SessionMemory {
    /// In front of each block: the list it belongs to, or -1, and what it has room for.
    private struct Header {
        var list: Int
        var capacity: Int
    }

    private static let headerBytes = 16
    /// The blocks of the first list, headers included; those of the next ones double.
    private static let smallestBytes = 64
    private static let lists = 6

    /// The first free block of each list; the blocks are linked through their own memory.
    @exclusivity(unchecked) private var free: UnsafeMutablePointer<UnsafeMutableRawPointer?>
    /// The bytes of all free blocks.
    @exclusivity(unchecked) private(set) var keptBytes = 0

    init() {
        free = .allocate(capacity: Self.lists)
        free.initialize(repeating: nil, count: Self.lists)
    }

    deinit {
        for list in 0..<Self.lists {
            while let block = free[list] {
                free[list] = block.load(as: UnsafeMutableRawPointer?.self)
                Glibc.free(block - Self.headerBytes)
            }
        }
        free.deallocate()
    }

    /// What nghttp2 takes its memory from: `body` passes it on to the making of a session.
    func withFunctions<Result>(_ body: (UnsafeMutablePointer<nghttp2_mem>) -> Result) -> Result {
        var functions = nghttp2_mem(
            mem_user_data: Unmanaged.passUnretained(self).toOpaque(),
            malloc: { size, context in
                SessionMemory.with(context) { $0.allocate(size) }
            },
            free: { block, context in
                SessionMemory.with(context) {
                    $0.release(block)
                    return nil
                }
            },
            calloc: { count, size, context in
                SessionMemory.with(context) { $0.allocateZeroed(count, size) }
            },
            realloc: { block, size, context in
                SessionMemory.with(context) { $0.resize(block, size) }
            })
        return body(&functions)
    }

    @inline(__always) @discardableResult
    private static func with(
        _ context: UnsafeMutableRawPointer?,
        _ body: (SessionMemory) -> UnsafeMutableRawPointer?
    ) -> UnsafeMutableRawPointer? {
        guard let context else { return nil }
        return Unmanaged<SessionMemory>.fromOpaque(context)._withUnsafeGuaranteedRef(body)
    }

    /// A block with room for `size` bytes; nil when memory is short.
    func allocate(_ size: Int) -> UnsafeMutableRawPointer? {
        guard size <= Self.smallestBytes << (Self.lists - 1) - Self.headerBytes else {
            return fresh(list: -1, capacity: size)
        }
        let whole = max(size + Self.headerBytes, Self.smallestBytes)
        let list = Int.bitWidth - (whole - 1).leadingZeroBitCount - 6
        guard let block = free[list] else {
            return fresh(list: list, capacity: Self.smallestBytes << list - Self.headerBytes)
        }
        free[list] = block.load(as: UnsafeMutableRawPointer?.self)
        keptBytes -= Self.smallestBytes << list
        return block
    }

    private func fresh(list: Int, capacity: Int) -> UnsafeMutableRawPointer? {
        let (bytes, overflow) = capacity.addingReportingOverflow(Self.headerBytes)
        guard !overflow, let memory = malloc(bytes) else { return nil }
        memory.storeBytes(of: Header(list: list, capacity: capacity), as: Header.self)
        return memory + Self.headerBytes
    }

    /// As `allocate`, for `count` elements that are zero.
    func allocateZeroed(_ count: Int, _ size: Int) -> UnsafeMutableRawPointer? {
        let (bytes, overflow) = count.multipliedReportingOverflow(by: size)
        guard !overflow, let block = allocate(bytes) else { return nil }
        memset(block, 0, bytes)
        return block
    }

    /// Takes a block back.
    func release(_ block: UnsafeMutableRawPointer?) {
        guard let block else { return }
        let header = (block - Self.headerBytes).load(as: Header.self)
        let bytes = Self.smallestBytes << max(header.list, 0)
        guard header.list >= 0, keptBytes + bytes <= Limits.sessionMemoryKeptBytes else {
            return Glibc.free(block - Self.headerBytes)
        }
        block.storeBytes(of: free[header.list], as: UnsafeMutableRawPointer?.self)
        free[header.list] = block
        keptBytes += bytes
    }

    /// A block of another size with the same bytes as far as they fit; the old one is gone unless
    /// the answer is nil.
    func resize(_ block: UnsafeMutableRawPointer?, _ size: Int) -> UnsafeMutableRawPointer? {
        guard let block else { return allocate(size) }
        let capacity = (block - Self.headerBytes).load(as: Header.self).capacity
        if size <= capacity { return block }
        guard let larger = allocate(size) else { return nil }
        larger.copyMemory(from: block, byteCount: capacity)
        release(block)
        return larger
    }
}
