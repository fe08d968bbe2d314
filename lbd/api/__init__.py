"""The HTTP API of a running lbd, for dashboards, alerts and other programs: reading, and a few changes.

``server`` listens in a thread of its own, ``app`` puts the routes together, ``guard`` checks each request,
``published`` has the published state: one reference, swapped after each turn. No response waits for a turn, and no turn
for a response.
"""
