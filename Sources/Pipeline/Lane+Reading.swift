// What a lane hears of its partitions beside their records: that an end was reached, that one cannot
// be read, and that one holds other records than it did.

internal import Base
internal import EventLoop
internal import Kafka

extension Lane {
    /// A partition that was added while this process runs is left alone: other topics may have no
    /// partition of its number, and a record that nobody takes would hold up all commits.
    func leaveUnread(_ partition: AssignedPartition) {
        partition.isReading = false
        let place = partition.assignment.place
        pulse.note(
            place,
            unreadable: "it has more partitions than when this process started; run `bugle topics "
                + "apply`, then restart")
        alarms.unknownPartition(place)
    }

    /// The queue of a partition delivered something else than a record.
    func take(_ fault: PartitionFault, of partition: AssignedPartition) {
        switch fault {
        case .endOfPartition(let offset):
            // It may also say that the log was cut, and that nothing is in it yet.
            if !partition.expects(offset) { restart(partition, at: offset) }
            partition.noteEnd(at: offset)
            if partition.unreadable != nil { noteReadable(partition) }
        case .failed(let error):
            let place = partition.assignment.place
            let reason = error.remedy(place.topic, group: settings.group)
            partition.unreadable = reason
            partition.lostItsEnd = partition.queue.end == nil
            pulse.note(place, unreadable: reason)
            alarms.unreadable(place, error, reason)
        }
    }

    /// A partition can be read again.
    func noteReadable(_ partition: AssignedPartition) {
        partition.unreadable = nil
        pulse.note(partition.assignment.place, unreadable: nil)
        alarms.readable(partition.assignment.place)
    }

    /// A quiet partition whose end was told before has neither a record nor an end to tell when it
    /// can be read again. But brokers do not say where it ends while they refuse it.
    func observeUnreadable() {
        for partition in partitions where partition.unreadable != nil {
            if partition.queue.end == nil {
                partition.lostItsEnd = true
            } else if partition.lostItsEnd {
                noteReadable(partition)
            }
        }
    }

    /// Records of a partition are numbered anew, from `offset` on: what is open goes on to its end
    /// and moves no offset; what the group has committed goes back.
    func restart(_ partition: AssignedPartition, at offset: Int64) {
        alarms.numberedAnew(
            partition.assignment.place, at: offset, after: (partition.position ?? 0) - 1)
        // What was completed before is of the former numbering.
        post()
        partition.restart(at: offset)
        outbox.restart(partition.assignment.epoch, at: offset)
        flushAtEndOfTurn()
    }
}

extension KafkaError {
    /// What is wrong with a topic that cannot be read, and what to do.
    fileprivate func remedy(_ topic: String, group: String) -> String {
        switch kind {
        case .unauthorized:
            "\(name): allow the principal of this process to read it, an ACL for Read and Describe "
                + "on topic \(topic), and Read on group \(group)"
        case .unknownTopic: "\(name): it is gone; run `bugle topics apply`"
        default: "\(self): it is tried again; see the broker's log"
        }
    }
}
