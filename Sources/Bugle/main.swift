// The program's start. Signals first: threads inherit what is blocked when they begin.

internal import Glibc

ProcessSignals.prepare()
exit(Program.run(Array(CommandLine.arguments.dropFirst())).rawValue)
