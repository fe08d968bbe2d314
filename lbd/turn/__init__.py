"""One turn: observe, decide, permit, hand over, record."""
