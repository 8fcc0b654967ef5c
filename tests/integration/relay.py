# Copyright 2026 The Shardward Authors
# SPDX-License-Identifier: Apache-2.0
"""A TCP relay in front of a server that can break a stream, like a proxy that restarts."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading

# Of HTTP/2, RFC 9113.
INTERNAL_ERROR, CANCEL = 2, 8
_RST_STREAM = 3


class Relay(socketserver.ThreadingTCPServer):
    """Passes bytes between its clients and a unix socket."""

    daemon_threads = True

    def __init__(self, path):
        """Listens on a free port."""
        self.path = str(path)
        self.clients = []
        super().__init__(("127.0.0.1", 0), _Connection)
        self.address = f"127.0.0.1:{self.server_address[1]}"

    def reset(self, stream, code):
        """Ends a stream of the newest connection; the server must be silent at the time."""
        frame = struct.pack(">I", 4)[1:] + bytes([_RST_STREAM, 0])
        self.clients[-1].sendall(frame + struct.pack(">II", stream, code))

    def hang_up(self):
        """Closes the newest connection."""
        self.clients[-1].shutdown(socket.SHUT_RDWR)


class _Connection(socketserver.BaseRequestHandler):
    def handle(self):
        self.server.clients.append(self.request)
        with socket.socket(socket.AF_UNIX) as behind:
            behind.connect(self.server.path)
            back = threading.Thread(target=_copy, args=(behind, self.request), daemon=True)
            back.start()
            _copy(self.request, behind)
            back.join(10)


def _copy(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for side in (source, target):
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relay(path):
    """A relay to a unix socket for the block."""
    with Relay(path) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join(10)
