"""The real turn in simulated time, on a seeded model of a cluster. Limits of the model: decision 0007."""
