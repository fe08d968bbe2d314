"""Placing: which broker a bundle should go to. Value in, value out: no clock, no random, no I/O."""
