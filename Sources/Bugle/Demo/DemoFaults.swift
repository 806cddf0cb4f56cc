internal import Base
internal import HTTP2
internal import Simulator

/// What goes wrong with the gateways during the demo: of what real ones do on a bad day, that which
/// is over within a second. After most errors their documents ask for ten seconds to fifteen
/// minutes of patience, which Bugle has and a demo has not.
internal enum DemoFaults {
    static func plan(seed: UInt64) -> FaultPlan {
        let reset: UInt32 = 2
        return FaultPlan(
            seed: seed,
            rules: [
                FaultRule(
                    "answers take 2 to 25 ms", FaultMatch(),
                    .delay(.uniform(.milliseconds(2), .milliseconds(25)))),
                FaultRule(
                    "APNs shuts a connection down",
                    FaultMatch(.apnsProduction, connection: 1, connectionRequest: 150),
                    .goAway(GoAwayFault(isGraceful: true, closeAfter: .seconds(2)))),
                FaultRule(
                    "an APNs server goes away",
                    FaultMatch(.apnsProduction, skip: 60, count: 6, every: 9),
                    .answer(FaultAnswer(status: 503, reason: "Shutdown"))),
                FaultRule(
                    "APNs refuses streams", FaultMatch(.apnsSandbox, skip: 20, count: 5), .refuse),
                FaultRule(
                    "APNs loses an answer", FaultMatch(.apnsSandbox, skip: 40, count: 1),
                    .reset(codes: [reset], processed: true)),
                FaultRule(
                    "FCM refuses streams", FaultMatch(.fcm, skip: 80, count: 8, every: 5), .refuse),
                FaultRule(
                    "FCM shuts a connection down",
                    FaultMatch(.fcm, connection: 1, connectionRequest: 200),
                    .goAway(GoAwayFault(isGraceful: true, closeAfter: .seconds(2)))),
            ])
    }
}
