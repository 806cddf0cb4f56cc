// The steps of a verdict. One that a misconfiguration can cause is counted before it takes effect;
// what a tripped fuse holds back goes on the topic as such, so that a rebuild holds it back too.

internal import Base
internal import Redis

extension ChangeRun {
    func judge(_ record: InvalidationRecord) {
        if record.verdict == .forget {
            return leaveFuses(record) { [self] in judgeFully(record) }
        }
        judgeFully(record)
    }

    private func judgeFully(_ record: InvalidationRecord) {
        judge(record, isRead: true) { [self] plan in
            // One that is set aside may find its registration by the time it is counted.
            if record.isCounted, !writer.setAside(record, at: position), plan.says(.blocks),
                let name = record.fuseName
            {
                return tally(record, name, plan)
            }
            if plan.says(.blocks) && record.isChurn { countChurn(record) }
            if plan.says(.overtaken) { writer.restate(record.addressID) }
            carryOut(plan, record.addressID) { [self] in close(record, plan) }
        }
    }

    /// `isRead` is false for what a fuse makes of the record.
    private func judge(
        _ record: InvalidationRecord, isRead: Bool, then next: @escaping (IndexPlan) -> Void
    ) {
        let words = [
            record.verdict.rawValue, String(record.asOf.value), record.tokenHash ?? "",
            record.reason, record.held?.rawValue ?? "", record.fuseID ?? "",
            record.fuseName?.text ?? "", isRead ? "1" : "0",
        ]
        let arguments =
            common(record.addressID.text) + positionArguments + words.map { Array($0.utf8) }
        run(
            IndexScripts.judge, [writer.layout.install(record.addressID)], arguments
        ) { [self] reply in
            guard let plan = IndexPlan(reply) else { return finish(.outdated) }
            next(plan)
        }
    }

    // MARK: - The fuse

    private func tally(_ record: InvalidationRecord, _ name: FuseName, _ plan: IndexPlan) {
        let question = writer.tally(
            record.addressID.text, name, reason: record.reason, at: position.timestamp)
        run(
            FuseScripts.tally, question.keys, question.arguments.map { Array($0.utf8) }
        ) { [self] reply in
            let words = reply.elements.compactMap(\.text)
            if words.first == "young" { writer.weighLater(name, reason: record.reason) }
            guard words.count >= 2 else {
                if plan.says(.overtaken) { writer.restate(record.addressID) }
                return carryOut(plan, record.addressID) { [self] in finish(.applied) }
            }
            let held = record.held(by: words[1])
            if words[0] == "trips" {
                writer.tripped(
                    name, words[1], reason: record.reason, count: words.count - 1,
                    others: words[2...])
            }
            judge(held, isRead: false) { [self] plan in
                carryOut(plan, record.addressID) { [self] in
                    writer.note(.publish(held))
                    finish(.applied)
                }
            }
        }
    }

    /// What follows a verdict: the book-keeping of the fuse it belongs to.
    private func close(_ record: InvalidationRecord, _ plan: IndexPlan) {
        guard let name = record.fuseName, let fuseID = record.fuseID else {
            return finish(.applied)
        }
        let layout = writer.layout
        let id = record.addressID.text
        if record.verdict == .quarantine && plan.says(.holds) {
            // Whatever is known of the address by now: its registration may be read later.
            let arguments = [
                id, String(position.timestamp), name.text, fuseID, record.reason,
                writer.isReadingBack ? "1" : "0",
            ]
            run(
                FuseScripts.adopt,
                [layout.judged(name), layout.trippedFuses, layout.settledFuses],
                arguments.map { Array($0.utf8) }
            ) { [self] reply in
                if let settlement = reply.text.flatMap(FuseSettlement.init(rawValue:)) {
                    writer.note(.publish(record.settled(by: settlement)))
                }
                finish(.applied)
            }
        } else if plan.says(.held) {
            // The record was about another hold: this one is still to be settled.
            finish(.applied)
        } else {
            let settlement = writer.isReadingBack ? nil : record.settlement
            settle(id, name, [settlement?.rawValue ?? "", "0"]) { [self] in finish(.applied) }
        }
    }

    private func settle(
        _ id: String, _ name: FuseName, _ how: [String], then next: @escaping () -> Void
    ) {
        let layout = writer.layout
        run(
            FuseScripts.settled,
            [
                layout.answers(name), layout.judged(name), layout.trippedFuses,
                layout.settledFuses,
            ], ([id, name.text] + how).map { Array($0.utf8) }
        ) { _ in next() }
    }

    /// Takes an address that is to be forgotten out of the fuses that count or hold it; before its
    /// record forgets which those are.
    private func leaveFuses(_ record: InvalidationRecord, then next: @escaping () -> Void) {
        let id = record.addressID
        run(OperatorScripts.describe, [writer.layout.install(id)], []) { [self] reply in
            let report = reply.elements.compactMap { AddressReport($0) }.first { $0.id == id }
            guard let verdicts = report?.verdicts, !verdicts.isDoubtful(after: record.asOf) else {
                return next()
            }
            leave(verdicts.fuses[...], id.text, then: next)
        }
    }

    private func leave(
        _ fuses: ArraySlice<FuseName>, _ id: String, then next: @escaping () -> Void
    ) {
        guard let name = fuses.first else { return next() }
        settle(id, name, ["", "1"]) { [self] in leave(fuses.dropFirst(), id, then: next) }
    }

    /// Beside the change: its result matters to nobody else.
    private func countChurn(_ record: InvalidationRecord) {
        guard let gateway = record.gateway, let environment = record.environment,
            !writer.isReadingBack, writer.now - UnixMillis(position.timestamp) < .hours(1)
        else { return }
        let app = record.addressID.app
        let arguments = [
            writer.now.value / 3_600_000, ChurnHistory.hours, Int64(ChurnHistory.hoursMin),
            Int64(ChurnHistory.deadMin), Int64(ChurnHistory.factor),
        ]
        writer.ask(
            FuseScripts.churned, [writer.layout.churn(app: app, gateway, environment)],
            arguments.map { String($0) }
        ) { [writer] reply in
            guard let dead = reply?.integer, dead > 0 else { return }
            writer.note(
                .churn(
                    ChurnAlarm(
                        app: app, gateway: gateway, environment: environment, dead: Int(dead))))
        }
    }
}
