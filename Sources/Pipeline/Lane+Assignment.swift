// Partitions come and go: what the group decides reaches the lane here.

internal import Base
internal import EventLoop
internal import Kafka

extension Lane {
    /// A partition is this lane's from now on.
    func assign(_ assignment: PartitionAssignment) {
        let eventClass = settings.classes[assignment.place.topic] ?? .transactional
        let partition = AssignedPartition(
            assignment, eventClass: eventClass, configurationHash: configurationHash, settings)
        partition.putOffAt = loop.now
        partitions.append(partition)
        noteUrgent()
        guard settings.isKnown(assignment.place) else { return leaveUnread(partition) }
        assignment.queue.onFault = { [unowned self, unowned partition] fault in
            take(fault, of: partition)
        }
        assignment.queue.enableWakeUps(wakeUp.fd)
        mayHaveRecords = true
        flushAtEndOfTurn()
    }

    private func noteUrgent() {
        urgentPartitions = partitions.filter { $0.road == .events && $0.eventClass == .critical }
    }

    /// No record of these assignments is read any more; `whenDrained` is called when what was read
    /// is complete and its results are posted. What stays unread stays in Kafka.
    func revoke(_ epochs: Set<Epoch>, whenDrained: @escaping () -> Void) {
        let leaving = partitions.filter { epochs.contains($0.assignment.epoch) }
        abandonHeld(by: leaving)
        var open = leaving.count { $0.openEvents > 0 }
        for partition in leaving {
            partition.isReading = false
            partition.queue.disableWakeUps()
            pulse.note(partition.assignment.place, unreadable: nil)
            guard partition.openEvents > 0 else { continue }
            partition.whenDrained = {
                open -= 1
                if open == 0 { whenDrained() }
            }
        }
        // They stay with their open events and nowhere else.
        partitions.removeAll { epochs.contains($0.assignment.epoch) }
        noteUrgent()
        departing.append(contentsOf: leaving.filter { $0.openEvents > 0 })
        if open == 0 {
            post()
            whenDrained()
        }
    }

    /// Lets go of events that wait for their time: nothing was done for them, and their next owner
    /// will read them again.
    private func abandonHeld(by leaving: [AssignedPartition]) {
        for partition in leaving { partition.isReading = false }
        dropWindows(of: leaving)
        for app in apps { app.expo?.receipts.abandon(leaving) }
        for event in events.inUse {
            guard let partition = event.partition, leaving.contains(where: { $0 === partition }),
                event.holdTimer != nil || partition.head === event || event.ticket != nil
            else { continue }
            if let timer = event.holdTimer { loop.cancel(timer) }
            if partition.head === event { partition.head = nil }
            abandon(event)
        }
    }

    /// These assignments are over: their work goes on, as requests cannot be called back, but its
    /// results are dropped; the new owner does it again.
    func forget(_ epochs: Set<Epoch>) {
        abandonHeld(by: (partitions + departing).filter { epochs.contains($0.assignment.epoch) })
        for partition in partitions + departing where epochs.contains(partition.assignment.epoch) {
            partition.isReading = false
            partition.isLost = true
            partition.queue.disableWakeUps()
            pulse.note(partition.assignment.place, unreadable: nil)
            if let whenDrained = partition.whenDrained {
                partition.whenDrained = nil
                whenDrained()
            }
        }
        partitions.removeAll { epochs.contains($0.assignment.epoch) }
        noteUrgent()
        departing.removeAll { epochs.contains($0.assignment.epoch) }
    }
}
