"""Something that listens on a port of its own and gives each connection a thread."""

import socket
import threading


class Listening:
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connected, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connected,), daemon=True).start()

    def serve(self, connected):
        raise NotImplementedError
