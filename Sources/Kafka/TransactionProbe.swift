// The question whether a cluster lets this program make transactions, asked before it matters.

public import Base

/// Asks under a name of its own, so that no running replica is disturbed.
public enum TransactionProbe {
    /// The instance name it asks under; transactional ids start with the group's name.
    public static let instance = "bugle-check"

    /// Takes the transactional id `<group>-bugle-check` over and lets it go. False when the
    /// coordinator did not answer in time. Throws what a committer would end with.
    public static func ask(
        _ configuration: KafkaConfiguration, group: String, timeout: TimeSpan
    ) throws(CommitterFailure) -> Bool {
        let names = TransactionNames(group: group, instance: instance)
        let producer: RecordProducer
        do throws(KafkaError) {
            producer = try RecordProducer(
                configuration, ProducerConfiguration(), topics: [], transactions: names)
        } catch {
            throw names.failure(error)
        }
        switch producer.initialiseTransactions(timeout) {
        case .done, .found: return true
        case .again: return false
        case .abort(let error), .fatal(let error), .refused(let error), .fenced(let error):
            throw names.failure(error)
        }
    }
}
