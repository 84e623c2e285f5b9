"""A raw RESP client that keeps what a friendly client hides: the type of every
reply, RESP2's two nulls apart from RESP3's one, doubles as they were written.

A reply is a pair (type byte as text, payload):

    ('+', b'OK')  ('-', b'ERR ...')  (':', 42)  ('$', b'..' or None)
    ('*', [..] or None)  ('%', [(key, value)..])  ('~', [..])  ('>', [..])
    ('_', None)  (',', b'3.14')  ('#', True)  ('(', b'123')  ('=', b'txt:..')

Costs one socket; never reads more than it is asked for; every wait has an end.
"""

import socket
import ssl
import time

WAIT_SECONDS = 30


class Closed(Exception):
    """The server closed the connection."""


class Silent(Exception):
    """Nothing (or not all of a reply) came within the time given."""


class ProtocolError(Exception):
    """The server sent something that is not RESP."""


def encode(args):
    """One request as the array of bulk strings every client sends."""
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        arg = to_bytes(arg)
        parts.append(b"$%d\r\n%s\r\n" % (len(arg), arg))
    return b"".join(parts)


def to_bytes(arg):
    if isinstance(arg, bytes):
        return arg
    return str(arg).encode()


class Connection:
    """One connection to a server, speaking RESP `protocol` (2 or 3), inside TLS if an
    `ssl.SSLContext` is given. `port` is the path of a Unix socket if it is no number."""

    def __init__(self, port, protocol=2, host="127.0.0.1", receive_buffer=None, tls=None):
        unix = not isinstance(port, int)
        self.socket = socket.socket(socket.AF_UNIX if unix else socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(WAIT_SECONDS)
        self.socket.connect(str(port) if unix else (host, port))
        if not unix:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.take_over(self.socket)
        if protocol == 3:
            self.call("HELLO", "3")

    def take_over(self, connected):
        """Reads from this socket, from here on."""
        self.socket = connected
        self.buffer = bytearray()
        self.at = 0
        # Arrays begun and not finished: [type, elements missing, elements].
        self.open = []

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send_raw(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError) as error:
            raise Closed from error

    def send(self, *args):
        self.send_raw(encode(args))

    def call(self, *args):
        """Sends one command and returns the first frame that is no push."""
        self.send(*args)
        return self.reply()

    def pipeline(self, commands):
        """Sends commands together and returns what each was answered."""
        self.send_raw(b"".join(map(encode, commands)))
        return [self.reply() for _ in commands]

    def reply(self, wait=WAIT_SECONDS):
        while True:
            frame = self.frame(wait)
            if frame[0] != ">":
                return frame

    def frame(self, wait=WAIT_SECONDS):
        """The next frame of any type. After `Silent` reading may go on: what
        has come of a frame is kept."""
        deadline = time.monotonic() + wait
        while True:
            try:
                frame = self._parse()
            except _Incomplete:
                self._fill(deadline)
                continue
            if self.at > 1 << 16:
                del self.buffer[: self.at]
                self.at = 0
            return frame

    def at_end(self, wait=WAIT_SECONDS):
        """Whether the server closes the connection without another frame."""
        try:
            self.frame(wait)
        except Closed:
            return True
        except Silent:
            return False
        return False

    def _fill(self, deadline):
        """Reads once."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise Silent
        self.socket.settimeout(left)
        try:
            data = self.socket.recv(1 << 18)
        except (TimeoutError, socket.timeout) as error:
            raise Silent from error
        except (ConnectionResetError, ssl.SSLEOFError) as error:
            raise Closed from error
        finally:
            try:
                self.socket.settimeout(WAIT_SECONDS)
            except OSError:
                pass
        if not data:
            raise Closed
        if self.at:
            del self.buffer[: self.at]
            self.at = 0
        self.buffer += data

    def _parse(self):
        """Takes elements from the buffer until a whole frame is together."""
        while True:
            done = self._element()
            while done:
                if not self.open:
                    return done
                top = self.open[-1]
                top[2].append(done)
                top[1] -= 1
                done = None
                if top[1] == 0:
                    self.open.pop()
                    done = finished(top[0], top[2])

    def _element(self):
        """One scalar, or one empty array; None when an array was begun.
        Takes nothing from the buffer unless it takes all of it."""
        end = self.buffer.find(b"\r\n", self.at)
        if end < 0:
            raise _Incomplete
        line = bytes(self.buffer[self.at : end])
        kind, rest = chr(line[0]) if line else "", line[1:]
        after = end + 2
        if kind in "$=" and kind:
            count = int(rest)
            if count == -1:
                value = None
            else:
                if len(self.buffer) < after + count + 2:
                    raise _Incomplete
                value = bytes(self.buffer[after : after + count])
                after += count + 2
                if self.buffer[after - 2 : after] != b"\r\n":
                    raise ProtocolError(f"bulk of {count} bytes is not followed by CRLF")
            self.at = after
            return (kind, value)
        self.at = after
        if kind in "+-,(" and kind:
            return (kind, rest)
        if kind == ":":
            return (":", int(rest))
        if kind == "_":
            return ("_", None)
        if kind == "#":
            return ("#", rest == b"t")
        if kind in "*~>%|" and kind:
            count = int(rest)
            if count == -1:
                return (kind, None)
            elements = {"%": 2 * count, "|": 2 * count + 1}.get(kind, count)
            if elements == 0:
                return finished(kind, [])
            self.open.append([kind, elements, []])
            return None
        raise ProtocolError(f"not RESP: {line[:200]!r}")


def finished(kind, elements):
    """A whole aggregate from its elements."""
    if kind == "%":
        return ("%", list(zip(elements[::2], elements[1::2])))
    if kind == "|":
        return ("|", [list(zip(elements[:-1:2], elements[1:-1:2])), elements[-1]])
    return (kind, elements)


class _Incomplete(Exception):
    pass


def show(reply, indent=""):
    """A reply as text that names every type, for reports and for `=` lines."""
    if reply is None:
        return indent + "(no reply)"
    kind, value = reply
    if kind in "*~>":
        if value is None:
            return f"{indent}{kind}null"
        if not value:
            return f"{indent}{kind}[]"
        return f"{indent}{kind}[\n" + "\n".join(show(v, indent + "  ") for v in value) + f"\n{indent}]"
    if kind == "%":
        if not value:
            return indent + "%{}"
        rows = [show(k, indent + "  ") + " => " + show(v, indent + "  ").lstrip() for k, v in value]
        return indent + "%{\n" + "\n".join(rows) + f"\n{indent}}}"
    if kind == "_":
        return indent + "_"
    if kind == "|":
        return indent + "|attributes " + show(value[1])
    if kind in "$=":
        return f"{indent}{kind}null" if value is None else f"{indent}{kind}{quote(value)}"
    if isinstance(value, bytes):
        return f"{indent}{kind}{value.decode('latin-1')}"
    return f"{indent}{kind}{value}"


def quote(data, limit=400):
    """Bytes as a double-quoted word that redis-cli and our case files read."""
    out = []
    for byte in data[:limit]:
        char = chr(byte)
        if char in '"\\':
            out.append("\\" + char)
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append({10: "\\n", 13: "\\r", 9: "\\t"}.get(byte, f"\\x{byte:02x}"))
    tail = f"...({len(data)} bytes)" if len(data) > limit else ""
    return '"' + "".join(out) + '"' + tail


def word(arg):
    """An argument as a word of a case file: bare where that is unambiguous."""
    arg = to_bytes(arg)
    if arg and all(33 <= b < 127 and chr(b) not in "\"'\\<>=#:$!" for b in arg):
        return arg.decode()
    if len(arg) > 64 and len(set(arg)) == 1:
        return quote(arg[:1]) + f"*{len(arg)}"
    return quote(arg, limit=1 << 20)
