// Simulator.
