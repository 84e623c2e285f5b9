"""The content port as a client of HTTP sees it."""

import contextlib
import http.client
import socket
import urllib.parse

from harness import servers

PATH = "/content/"


def path_of(key):
    """A key as a path: every byte escaped that need not be told from a path's own."""
    # `config` is the policy's.
    return PATH + urllib.parse.quote(key, safe="").replace("config", "%63onfig")


class Content:
    """A server with a content port."""

    def __init__(self, server, context=None):
        self.server, self.context = server, context
        self.port = int(server.command[server.command.index("--content-port") + 1])

    def connect(self):
        if self.context:
            return http.client.HTTPSConnection("localhost", self.port, timeout=60, context=self.context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None, headers=(), **how):
        """One request on a connection of its own: status, body, headers."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, dict(headers), **how)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers

    def put(self, key, body, **headers):
        return self.ask("PUT", path_of(key), body, named(headers))

    def get(self, key, **headers):
        return self.ask("GET", path_of(key), None, named(headers))

    def raw(self, *pieces):
        """Sends bytes and reads until the server closes; what it said."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as peer:
            for piece in pieces:
                peer.sendall(piece)
            return said(peer)


def said(peer):
    """All that a peer says until it closes."""
    all_of_it = b""
    with contextlib.suppress(ConnectionResetError):
        while more := peer.recv(65536):
            all_of_it += more
    return all_of_it


def named(headers):
    """`If_Match` as a keyword stands for the header `If-Match`."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


def serving(target, *flags, **how):
    """A server that is to serve content, not started yet."""
    return target.server("--content-port", str(servers.free_port()), "--enable-debug-command", "local", *flags, **how)
