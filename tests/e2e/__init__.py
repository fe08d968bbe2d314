"""Real Pulsar clusters on loopback addresses, real traffic, and an observer that knows nothing of lbd."""
