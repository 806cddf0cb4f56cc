/// An object that lives in a `Slab` and knows its place there.
internal protocol SlabResident: AnyObject {
    /// The place; set by the slab.
    var slot: Int { get set }
    /// Forgets everything about the work that is over, and keeps the memory.
    func recycle()
}

/// Reusable objects addressed by small integers: what is in flight is named by its slot in tags
/// that cross other rooms, and nothing is allocated after warm-up.
internal final class Slab<Resident: SlabResident> {
    @exclusivity(unchecked) private var residents: [Resident] = []
    @exclusivity(unchecked) private var free: [Int] = []
    private let make: () -> Resident

    init(_ make: @escaping () -> Resident) { self.make = make }

    /// The number of residents in use.
    var count: Int { residents.count - free.count }

    /// The resident of a slot that is in use.
    subscript(slot: Int) -> Resident { residents[slot] }

    /// The residents in use, in the order of their slots; linear in all there are.
    var inUse: [Resident] {
        let unused = Set(free)
        return residents.filter { !unused.contains($0.slot) }
    }

    /// A resident for new work.
    func take() -> Resident {
        if let slot = free.popLast() { return residents[slot] }
        let resident = make()
        resident.slot = residents.count
        residents.append(resident)
        return resident
    }

    /// Takes a resident back; its slot is reused.
    func give(_ resident: Resident) {
        resident.recycle()
        free.append(resident.slot)
    }
}
