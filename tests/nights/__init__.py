"""Nights: whole lbds in one process and in simulated time, repeatable by their seed."""
