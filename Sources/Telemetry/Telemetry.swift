// Telemetry.
