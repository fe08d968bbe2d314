"""The real turn over simulated time, against a seeded model of a cluster. What the model leaves out: decision 0007."""
