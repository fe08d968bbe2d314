"""The HTTP API of a running lbd: what dashboards, alerts and other programs ask it, and the little they may ask of it.

``server`` listens in a thread of its own, ``app`` puts the routes together, ``guard`` decides who may ask what,
``board`` is what is shown: one reference, swapped after each turn. No answer waits for a turn, and no turn for one.
"""
