// Gateways.
