"""The process: real parts put together (``wiring``), and its life (``service``)."""
