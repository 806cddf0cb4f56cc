// The steps of a registration: the install's record, the token's slot, those who had the token.

internal import Base
internal import Redis

extension ChangeRun {
    func register(_ record: RegistrationRecord) {
        let id = record.addressID
        var arguments = common(id.text) + positionArguments
        var claimed: (slot: String, address: DeviceAddress)?
        switch record {
        case .gone:
            for text in ["0", "0", "0", "", "0", "", ""] { arguments.append(Array(text.utf8)) }
            arguments += limits(lastSeen: UnixMillis(0))
        case .registered(let address):
            let slot = TokenSlot(address).description
            claimed = (slot, address)
            arguments += [
                "1", String(address.version), String(address.registeredAt.value), slot,
                address.userID == nil ? "0" : "1", address.userID ?? "",
            ].map { Array($0.utf8) }
            arguments.append(address.withStored { Array($0) })
            arguments += limits(lastSeen: address.lastSeenAt ?? address.registeredAt)
        }
        run(IndexScripts.register, [writer.layout.install(id)], arguments) { [self] reply in
            guard let plan = IndexPlan(reply) else {
                let isFull = reply.elements.first?.text == "full"
                return finish(isFull ? .refused(IndexRefusal.installIsFull) : .outdated)
            }
            guard let claimed, plan.word != "outdated" else {
                let result: ChangeResult = plan.word == "outdated" ? .outdated : .applied
                return carryOut(plan, id) { [self] in finish(result) }
            }
            claim(claimed.slot, claimed.address, plan)
        }
    }

    private func limits(lastSeen: UnixMillis) -> [[UInt8]] {
        [String(IndexLimits.addressesPerInstall), String(lastSeen.value)].map { Array($0.utf8) }
    }

    func claim(_ slot: String, _ address: DeviceAddress, _ plan: IndexPlan) {
        let id = address.id
        let arguments = [id.text, String(address.registeredAt.value)].map { Array($0.utf8) }
        run(IndexScripts.claim, [writer.layout.slot(slot)], arguments) { [self] reply in
            let words = reply.elements.compactMap(\.text)
            guard words.count >= 2, let holder = AddressID(words[1]) else {
                return finish(.refused("the token's slot cannot be read"))
            }
            tellDisplaced(words[2...], slot, claim: words[0], holder) { [self] in
                if plan.isHeld && holder == id {
                    return carryOut(plan, id) { [self] in finish(.applied) }
                }
                settle(id, slot, claim: words[0], holder) { [self] in finish(.applied) }
            }
        }
    }

    // MARK: - Listing anew

    func relist(_ id: AddressID) {
        run(OperatorScripts.relist, [writer.layout.install(id)], []) { [self] reply in
            guard let plan = IndexPlan(reply) else { return finish(.outdated) }
            claimAgain(plan.entries[...], plan) { [self] in
                carryOut(plan, id) { [self] in finish(.applied) }
            }
        }
    }

    /// Claims what the entries hold; what somebody else claimed later is given up.
    private func claimAgain(
        _ entries: ArraySlice<IndexPlan.Entry>, _ plan: IndexPlan, then next: @escaping () -> Void
    ) {
        guard let entry = entries.first else { return next() }
        let goOn = { [self] in claimAgain(entries.dropFirst(), plan, then: next) }
        guard let address = entry.address else { return goOn() }
        let id = address.id
        let slot = TokenSlot(address).description
        let arguments = [id.text, String(address.registeredAt.value)].map { Array($0.utf8) }
        run(IndexScripts.claim, [writer.layout.slot(slot)], arguments) { [self] reply in
            let words = reply.elements.compactMap(\.text)
            guard words.count >= 2, let holder = AddressID(words[1]) else { return goOn() }
            tellDisplaced(words[2...], slot, claim: words[0], holder) { [self] in
                if holder == id { return goOn() }
                settle(id, slot, claim: words[0], holder, then: goOn)
            }
        }
    }

    /// Takes the token from those who had it, one after another, before it is given on.
    func tellDisplaced(
        _ displaced: ArraySlice<String>, _ slot: String, claim: String, _ holder: AddressID,
        then next: @escaping () -> Void
    ) {
        guard let text = displaced.first else { return next() }
        let told = { [self] in
            run(
                IndexScripts.told, [writer.layout.slot(slot)],
                [Array(text.utf8), Array(claim.utf8)]
            ) { [self] _ in
                tellDisplaced(
                    displaced.dropFirst(), slot, claim: claim, holder, then: next)
            }
        }
        guard let id = AddressID(text) else { return told() }
        settle(id, slot, claim: claim, holder, then: told)
    }

    func settle(
        _ id: AddressID, _ slot: String, claim: String, _ holder: AddressID,
        then next: @escaping () -> Void
    ) {
        let arguments = common(id.text) + [slot, claim, holder.text].map { Array($0.utf8) }
        run(IndexScripts.settle, [writer.layout.install(id)], arguments) { [self] reply in
            guard let plan = IndexPlan(reply) else { return next() }
            carryOut(plan, id, then: next)
        }
    }
}
