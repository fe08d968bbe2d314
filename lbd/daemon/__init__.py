"""Where real parts are put together (``parts``, ``dry``), and the life of the process that turns them (``service``)."""
