// The program's start.

internal import Glibc

ProcessSignals.ignorePipes()
exit(Program.run(Array(CommandLine.arguments.dropFirst())).rawValue)
