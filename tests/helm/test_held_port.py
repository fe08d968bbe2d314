"""A port that a test holds for the server that it starts."""

from __future__ import annotations

import socket

import pytest

from tests.helm.api_server import held_port


def test_only_who_shares_ports_listens_on_it():
    """The server that is told to gets the connections; nobody else gets the port, before it listens or after."""
    with held_port() as port, socket.socket() as server, socket.socket() as stranger:
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            accepted, _ = server.accept()
            with accepted:
                assert accepted.getpeername() == client.getsockname()
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
