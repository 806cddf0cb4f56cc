// Fan out: from a user to the user's addresses. The set of targets is fixed here; later look-ups
// refresh an address or find it gone, but add none.

internal import Base
internal import Crypto
internal import EventLoop
internal import Gateways
internal import Routes
internal import TokenIndex

extension Lane {
    /// An event enters the look-up, unless its time is over or not yet come.
    func admit(_ event: EventInFlight) {
        guard let envelope = event.envelope else { return }
        identify(event)
        if envelope.expiresAt <= loop.wall { return expire(event) }
        let notBefore = max(envelope.notBefore ?? loop.wall, event.reentry?.notBefore ?? loop.wall)
        let wait = notBefore - loop.wall
        if wait <= .zero {
            guard passesLevers(event) else { return }
            if event.routed?.route.coalesces == true, coalesce(event) { return }
            return lookUp(event)
        }
        let patience =
            envelope.isOneAttempt ? LaneSettings.longestHold : settings.retry.longestWait
        if wait <= patience { hold(event, for: wait) } else { postpone(event, until: notBefore) }
    }

    /// Keeps an event for a while.
    func hold(_ event: EventInFlight, for span: TimeSpan) {
        let timer = LoopTimer { [unowned self, unowned event] in
            event.holdTimer = nil
            leaveHead(event)
            admit(event)
        }
        event.holdTimer = timer
        loop.schedule(timer, at: loop.now + span)
    }

    /// The event was the head of a retry topic that was not due; what is behind it may be read.
    private func leaveHead(_ event: EventInFlight) {
        guard event.partition?.head === event else { return }
        event.partition?.head = nil
        mayHaveRecords = true
        flushAtEndOfTurn()
    }

    func identify(_ event: EventInFlight) {
        guard let envelope = event.envelope, let app = event.app else { return }
        event.identity = envelope.identity(app: app.name, scratch: scratch)
    }

    private func lookUp(_ event: EventInFlight) {
        guard let envelope = event.envelope, let app = event.app, mayBeFirst(event) else { return }
        if envelope.collapseKey != nil { enterOrder(event) }
        if envelope.isBroadcast, fanOutBroadcast(event) { return }
        lookUpsOpen += 1
        if event.trace != nil { event.askedAt = loop.wall }
        index.lookUp(app: app.name, userID: envelope.userID, tag: LookUpTag.event(event.slot))
    }

    /// Repeats the look-up of one target before its next request.
    func refresh(_ target: TargetInFlight) {
        guard let event = target.event, let envelope = event.envelope, let app = event.app else {
            return
        }
        if envelope.isBroadcast {
            // Nobody else can own a topic.
            target.lookedUpAt = loop.now
            return start(target)
        }
        index.lookUp(app: app.name, userID: envelope.userID, tag: LookUpTag.target(target.slot))
    }

    /// The index could not tell. What it cannot tell for good must not hold the event open for ever.
    private func refreshAgain(_ target: TargetInFlight) {
        guard let envelope = target.event?.envelope, envelope.expiresAt > loop.wall else {
            return settle(target, Settlement(outcome: .expired))
        }
        refresh(target)
    }

    /// The namespace of message and result ids: fixed for ever, so that ids of one event are the
    /// same in every version and on every road it may take.
    static let namespace = UUIDBytes(high: 0x6275_676C_652E_5A31, low: 0x8F3C_0D5A_4E1B_77A9)
}

/// What a look-up was for, packed into its tag.
internal enum LookUpTag {
    static func event(_ slot: Int) -> UInt64 { UInt64(slot) << 1 }
    static func target(_ slot: Int) -> UInt64 { UInt64(slot) << 1 | 1 }
    static func isTarget(_ tag: UInt64) -> Bool { tag & 1 == 1 }
    static func slot(_ tag: UInt64) -> Int { Int(tag >> 1) }
}

extension Lane: TokenIndexDelegate {
    func lookUpFinished(tag: UInt64, _ result: LookUpResult) {
        let slot = LookUpTag.slot(tag)
        if !LookUpTag.isTarget(tag) { lookUpsOpen -= 1 }
        flushAtEndOfTurn()
        switch result {
        case .addresses(let addresses, let dropped, let time, let user):
            if LookUpTag.isTarget(tag) {
                targets[slot].event?.user = user
                refreshed(targets[slot], addresses, at: time)
            } else {
                events[slot].user = user
                fanOut(events[slot], addresses, dropped: dropped, at: time)
            }
        case .unavailable(let fault):
            // The user's devices are unknown, which is not the same as none: ask again.
            alarms.indexFault(fault)
            let timer = LoopTimer { [unowned self] in
                if LookUpTag.isTarget(tag) { return refreshAgain(targets[slot]) }
                events[slot].holdTimer = nil
                admit(events[slot])
            }
            loop.schedule(timer, at: loop.now + settings.lookUpRetryInterval)
            retain(timer, for: tag)
        }
    }

    func indexReadinessChanged() {
        observe()
        flushAtEndOfTurn()
    }

    private func retain(_ timer: LoopTimer, for tag: UInt64) {
        let slot = LookUpTag.slot(tag)
        if LookUpTag.isTarget(tag) {
            targets[slot].timer = timer
        } else {
            events[slot].holdTimer = timer
        }
    }

    func fanOut(
        _ event: EventInFlight, _ addresses: [DeviceAddress], dropped: Int, at time: MonotonicTime
    ) {
        guard let envelope = event.envelope, let app = event.app else { return }
        if event.awaitsMark || event.awaitsOrder {
            event.heldLookUp = HeldLookUp(addresses: addresses, dropped: dropped, time: time)
            return
        }
        if event.isDuplicate { return endDuplicate(event) }
        if event.routed?.route.hasQuietHours == true, keepQuiet(event, addresses) { return }
        if routes.caps.countsEvents,
            awaitsPlace(
                event, addresses, HeldLookUp(addresses: addresses, dropped: dropped, time: time))
        {
            return
        }
        if event.reentry?.targets != nil { return resume(event, addresses, at: time) }
        if dropped > 0 { alarms.addressesDropped(dropped, kept: addresses.count) }
        event.fannedOutAt = loop.wall
        let stems = writeStems(of: event)
        let chosen = envelope.targets(
            among: addresses, event.routed?.route, preferring: settings.gatewayPreference
        ) { app.bulkhead($0.gateway, $0.environment) != nil }
        for address in chosen {
            let target = targets.take()
            target.event = event
            target.address = address
            target.lookedUpAt = time
            target.index = event.targets.count
            address.withAddressID { identify(target, $0, stems) }
            event.targets.append(target)
        }
        guard !event.targets.isEmpty else { return endWithoutTargets(event, .noDevices, nil) }
        settleTogether(event) { start($0, of: event, envelope, app) }
    }

    /// Starts every target. One that settles at once must not complete the event while others of
    /// it are still to be looked at: the set is fixed before the first one moves, and the slot may
    /// be reused as soon as the last one has.
    func settleTogether(_ event: EventInFlight, _ body: (TargetInFlight) -> Void) {
        event.openTargets = event.targets.count + 1
        for target in event.targets { body(target) }
        targetSettled(event)
    }

    /// Writes what the names of an event's messages and of its results begin with, the ones by the
    /// event, the others by the record, and returns their lengths.
    func writeStems(of event: EventInFlight) -> (message: Int, result: Int) {
        scratch.removeAll()
        scratch.append(uuid: event.identity)
        eventFields.removeAll()
        eventFields.append(event.position.topic)
        eventFields.append(0)
        eventFields.append(decimal: Int64(event.position.partition))
        eventFields.append(0)
        eventFields.append(decimal: event.position.offset)
        eventFields.append(0)
        return (scratch.count, eventFields.count)
    }

    /// Names a target's message and result; the stems are its event's, written last.
    func identify(
        _ target: TargetInFlight, _ addressID: UnsafeRawBufferPointer,
        _ stems: (message: Int, result: Int)
    ) {
        scratch.truncate(to: stems.message)
        scratch.append(addressID)
        target.messageID = UUIDv5.make(namespace: Self.namespace, name: scratch.bytes)
        eventFields.truncate(to: stems.result)
        eventFields.append(addressID)
        target.resultID = UUIDv5.make(namespace: Self.namespace, name: eventFields.bytes)
    }

    /// Chooses the way of a target, or settles it when there is none.
    func start(_ target: TargetInFlight) {
        guard let event = target.event, let envelope = event.envelope, let app = event.app else {
            return
        }
        start(target, of: event, envelope, app)
    }

    private func start(
        _ target: TargetInFlight, of event: EventInFlight, _ envelope: EventEnvelope,
        _ app: LaneApp
    ) {
        guard let address = target.address else { return }
        if address.isQuarantined { return settleQuarantined(target) }
        if let reason = suppression(of: address, by: event.routed, event.user) {
            return settle(target, Settlement(outcome: .suppressed, reason: reason))
        }
        guard let bulkhead = app.bulkhead(address.gateway, address.environment) else {
            return settle(
                target,
                Settlement(
                    outcome: .rejected, reason: .gatewayNotConfigured,
                    detail: "\(address.gateway.rawValue) \(address.environment.rawValue)"))
        }
        if address.gateway == .webpush { return startWebPush(target, of: event, envelope, app) }
        target.bulkhead = bulkhead
        if address.gateway == .apns, awaitsSlot(target, of: event, envelope) { return }
        send(target, of: event, envelope, bulkhead)
    }

    /// Why an address gets nothing; without a route an event counts as one that is shown.
    func suppression(
        of address: DeviceAddress, by routed: RoutedEvent?, _ user: UserRecord?
    ) -> Reason? {
        guard let routed else { return address.permission == .denied ? .permissionDenied : nil }
        return routed.suppression(of: address, user)
    }

    /// A repeated look-up: the address as it is now, or gone to somebody else.
    private func refreshed(
        _ target: TargetInFlight, _ addresses: [DeviceAddress], at time: MonotonicTime
    ) {
        guard let former = target.address else { return }
        let current = addresses.first { candidate in
            candidate.withAddressID { id in former.withAddressID { id.elementsEqual($0) } }
        }
        guard let current else {
            return settle(target, Settlement(outcome: .suppressed, reason: .superseded))
        }
        target.address = current
        target.lookedUpAt = time
        // A new registration may lead elsewhere.
        start(target)
    }

    /// A tripped fuse holds a verdict on the token back.
    private func settleQuarantined(_ target: TargetInFlight) {
        settle(target, Settlement(outcome: .suppressed, reason: .quarantined))
    }
}

// MARK: - One push for an install

extension EventEnvelope {
    /// The addresses that are meant, of each install only one: what could be reached through
    /// several gateways is reached through the preferred one of those that are configured.
    func targets(
        among addresses: [DeviceAddress], _ route: Route?, preferring preference: [Gateway],
        isConfigured: (DeviceAddress) -> Bool
    ) -> [DeviceAddress] {
        let meant = addresses.filter { self.addresses($0, route) }
        // Only an instance makes a second address of one kind possible.
        guard meant.count > 1, meant.contains(where: \.isInstance) else { return meant }
        func rank(_ address: DeviceAddress) -> (Int, Int, Int64) {
            let isUsable = isConfigured(address) && !address.isQuarantined
            let place = preference.firstIndex(of: address.gateway)
            return (isUsable ? 0 : 1, place ?? .max, -address.registeredAt.value)
        }
        var best: [String: DeviceAddress] = [:]
        for address in meant {
            let place = address.pushPlace
            guard let other = best[place], rank(address) >= rank(other) else {
                best[place] = address
                continue
            }
        }
        return meant.filter { best[$0.pushPlace] === $0 }
    }
}

extension DeviceAddress {
    /// What one push is enough for: a kind on an install.
    var pushPlace: String { "\(installID)/\(kind)" }
}

extension EventEnvelope {
    /// What all pushes of an event have in common: the same on every road it may take.
    func identity(app: String, scratch: ByteWriter) -> UUIDBytes {
        scratch.removeAll()
        scratch.append(app)
        scratch.append(0)
        scratch.append(source)
        scratch.append(0)
        scratch.append(id)
        return UUIDv5.make(namespace: Lane.namespace, name: scratch.bytes)
    }

    /// The id of an event's push to an address.
    static func messageID(
        of identity: UUIDBytes, addressID: UnsafeRawBufferPointer, scratch: ByteWriter
    ) -> UUIDBytes {
        scratch.removeAll()
        scratch.append(uuid: identity)
        scratch.append(addressID)
        return UUIDv5.make(namespace: Lane.namespace, name: scratch.bytes)
    }

    /// Whether an address is meant: of a kind that the route names, or `alert`, inside `only` and
    /// outside `except`.
    func addresses(_ address: DeviceAddress, _ route: Route?) -> Bool {
        if isBroadcast { return true }
        let kind = address.kind
        let isOfKind = route?.addresses(kind: kind, at: address.gateway) ?? (kind == "alert")
        guard isOfKind else { return false }
        guard only != nil || except != nil else { return true }
        let (installID, platform) = (address.installID, address.platform)
        let isInside =
            only?.isNamedByAll(
                installID: installID, platform: platform, gateway: address.gateway) ?? true
        let isOutside =
            except?.isNamedByAny(
                installID: installID, platform: platform, gateway: address.gateway) ?? false
        return isInside && !isOutside
    }
}
