"""A server that lies: it hands every request to a real redis-server and alters
replies as told. With it the tests are tested: they must notice.

One thread per client; `alter(args, reply, past)` gets the request, the encoded
reply and the earlier requests of the connection, and returns what to send.
"""

from harness.listening import Listening
from harness.resp import Closed, Connection


class Impostor(Listening):
    kind = "impostor"

    def __init__(self, server, alter):
        self.server, self.alter = server, alter
        super().__init__()

    def connect(self, protocol=2, **more):
        return Connection(self.port, protocol, **more)

    def alive(self):
        return self.server.alive()

    def log(self):
        return self.server.log()

    def stop(self):
        self.listener.close()

    def serve(self, client):
        reader = Connection.__new__(Connection)
        reader.take_over(client)
        past = []
        with self.server.connect() as upstream, client:
            while True:
                try:
                    args = [part[1] for part in reader.frame(60)[1]]
                    upstream.send(*args)
                    client.sendall(self.alter(args, write(upstream.frame()), past))
                except (Closed, OSError):
                    return
                past.append(args)


def write(frame):
    """A reply as bytes again."""
    kind, value = frame
    if kind in "*~>":
        if value is None:
            return b"*-1\r\n"
        return b"%s%d\r\n" % (kind.encode(), len(value)) + b"".join(map(write, value))
    if kind == "%":
        return b"%%%d\r\n" % len(value) + b"".join(write(k) + write(v) for k, v in value)
    if kind in "$=":
        return b"$-1\r\n" if value is None else b"%s%d\r\n%s\r\n" % (kind.encode(), len(value), value)
    if kind == "_":
        return b"_\r\n"
    if kind == "#":
        return b"#t\r\n" if value else b"#f\r\n"
    return kind.encode() + str(value).encode() + b"\r\n" if kind == ":" else kind.encode() + value + b"\r\n"
