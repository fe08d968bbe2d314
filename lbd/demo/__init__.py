"""``lbd demo``: the real daemon, as ``lbd run`` puts it together, against a simulated cluster over HTTP on loopback."""
