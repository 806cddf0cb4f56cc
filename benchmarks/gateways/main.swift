// What building a push costs each gateway, in CPU time of this process: from an event's parsed JSON
// to the bytes that a connection takes. Web push encrypts every message for its subscription; Expo
// puts up to a hundred messages into a request and compresses it.
//
//     swift run -c release GatewayBenchmark [ROUNDS]

let rig = try Rig()
var rounds: [Round] = []
for _ in 0..<(CommandLine.arguments.count > 1 ? Int(CommandLine.arguments[1]) ?? 5 : 5) {
    rounds.append(try rig.round())
}
print(Round.json(rounds))
