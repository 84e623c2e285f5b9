"""Runs the same steps against two servers and compares every reply.

The reference runs each step first, so what is to be waited for from the server
under test (pushes, messages) is known by number and never by patience alone.
"""

import itertools
import time
from dataclasses import dataclass

from harness import exceptions
from harness.resp import Closed, Connection, Silent, encode, show, to_bytes
from harness.tier import Mover

CLOSED = ("x", b"connection closed")
SILENT = ("x", b"nothing came")
#: Commands that answer with as many frames as they like: read up to a marker.
MANY_FRAMES = {"subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe", "exec", "reset", "publish", "spublish"}
_marker_numbers = itertools.count(1)
#: Commands of one pipeline, and where values go to disk before each: few, so that many
#: commands find their values there, and some find them on the way back.
AT_ONCE, AT_ONCE_TIERED = (50,), (1, 1, 2, 1, 5)


@dataclass
class Mismatch(Exception):
    """A reply that differs: after which steps, to which, and how."""

    steps: list
    step: object
    wanted: list
    got: list

    def __str__(self):
        lines = ["reply differs to: " + self.step.text()]
        lines += ["redis-server:", *(show(r, "    ") for r in self.wanted)]
        lines += ["server under test:", *(show(r, "    ") for r in self.got)]
        lines += ["steps:", *("    " + s.text() for s in self.steps)]
        return "\n".join(lines)


class Side:
    """One server with the connections of one case."""

    def __init__(self, server, protocol):
        self.server, self.protocol = server, protocol
        self.connections, self.kept = {}, {}

    def connection(self, number):
        if number not in self.connections:
            self.connections[number] = Connection(self.server.port, self.protocol)
        return self.connections[number]

    def fill_in(self, args):
        """The arguments with `$name` replaced by what this server had said."""
        return [self.kept.get(a[1:], a) if to_bytes(a)[:1] == b"$" else a for a in args]

    def send(self, number, args):
        try:
            self.connection(number).send(*self.fill_in(args))
        except Closed:
            pass

    def frames_of_reply(self, number):
        """Pushes that came first, then the reply."""
        frames = []
        while True:
            frame = self.frame(number)
            frames.append(frame)
            if frame[0] != ">":
                return frames

    def frame(self, number, wait=30):
        try:
            return self.connection(number).frame(wait)
        except Closed:
            return CLOSED
        except Silent:
            return SILENT

    def drain(self, number, at_least=0):
        """Everything up to the answer to a PING of our own."""
        marker = b"marker-%d" % next(_marker_numbers)
        frames = []
        while len(frames) < at_least:
            frames.append(self.frame(number, wait=5))
            if frames[-1][0] == "x":
                return frames
        self.send(number, ["PING", marker])
        while True:
            frame = self.frame(number, wait=5)
            if is_marker(frame, marker):
                return frames
            frames.append(frame)
            if frame[0] == "x":
                return frames
            if frame[0] == "-" and frame[1].startswith(b"NOAUTH"):
                return frames[:-1] + self.rest_without_password(number, frame, marker)

    def rest_without_password(self, number, first, marker):
        """Without a password our PING is refused too: an unknown command, which
        is refused in other words, tells where the answers end."""
        frames = [first]
        self.send(number, [marker])
        while True:
            frame = self.frame(number, wait=5)
            if frame[0] == "x":
                return frames
            if frame[0] == "-" and marker in frame[1]:
                return frames[:-1]
            frames.append(frame)

    def until(self, step, patience=20):
        """Asks until the reply holds the text; what came instead otherwise."""
        deadline = time.monotonic() + patience
        while True:
            self.send(step.connection, step.args[1:])
            reply = self.frames_of_reply(step.connection)[-1]
            if isinstance(reply[1], bytes) and to_bytes(step.args[0]) in reply[1]:
                return [("+", b"as awaited")]
            if time.monotonic() > deadline or reply[0] == "x":
                return [reply]
            time.sleep(0.02)

    def frames_to_the_end(self, number):
        frames = [self.frame(number, wait=5)]
        while frames[-1][0] != "x":
            frames.append(self.frame(number, wait=5))
        return frames

    def close(self):
        """Closes every connection and waits until the server knows."""
        for connection in self.connections.values():
            leave(connection)
        self.connections.clear()


def leave(connection):
    """Closes a connection and waits until the server knows: it is in no list of clients then."""
    try:
        connection.socket.shutdown(1)
        connection.socket.settimeout(2)
        while connection.socket.recv(1 << 16):
            pass
    except OSError:
        pass
    connection.close()


def is_marker(frame, marker):
    kind, value = frame
    if kind == "$":
        return value == marker
    return kind in "*>" and value == [("$", b"pong"), ("$", marker)]


class Pair:
    """The reference and the server under test. `tiered`: before each step, whatever the
    latter holds goes to its disk tier."""

    def __init__(self, reference, tested, tiered=False):
        self.reference, self.tested, self.tiered = reference, tested, tiered

    @property
    def tests_snug(self):
        return self.tested.kind == "snug"

    def clean(self):
        for server in (self.reference, self.tested):
            with server.connect() as connection:
                reply = connection.call("FLUSHALL")
                assert reply == ("+", b"OK"), f"FLUSHALL: {show(reply)}\n{server.log()}"
                leave(connection)

    def run(self, case_or_steps, protocol=2, batch=False, drains=True):
        """Runs one case from an empty database; raises Mismatch."""
        steps = getattr(case_or_steps, "steps", case_or_steps)
        drains = getattr(case_or_steps, "drains", drains)
        parameters = changed_parameters(steps)
        before = [self.parameters(server, parameters) for server in (self.reference, self.tested)]
        run = _Run(self, steps, protocol)
        of_users = any(step.name == "acl" for step in steps)
        try:
            self.clean()
            run.all(batch, drains)
        finally:
            run.close()
            if of_users:
                forget_users(self.reference)
                forget_users(self.tested)
            for server, values in zip((self.reference, self.tested), before):
                restore(server, values)

    def difference(self, case_or_steps, protocol=2, **more):
        """The Mismatch that a run finds, or None."""
        try:
            self.run(case_or_steps, protocol, **more)
        except Mismatch as mismatch:
            return mismatch
        return None

    @staticmethod
    def parameters(server, names):
        values = {}
        if names:
            with server.connect() as connection:
                for name in names:
                    reply = connection.call("CONFIG", "GET", name)
                    if reply[0] == "*" and reply[1]:
                        values[name] = reply[1][1][1]
                leave(connection)
        return values


def forget_users(server):
    """Leaves the default user alone, as it was, and an empty ACL LOG."""
    with server.connect() as connection:
        names = [name for _, name in connection.call("ACL", "USERS")[1] if name != b"default"]
        if names:
            connection.call("ACL", "DELUSER", *names)
        connection.call("ACL", "SETUSER", "default", "on", "nopass", "+@all", "allkeys", "allchannels", "clearselectors")
        connection.call("ACL", "LOG", "RESET")
        leave(connection)


def changed_parameters(steps):
    """Names that CONFIG SET steps touch, so that they can be put back."""
    names = set()
    for step in steps:
        words = [to_bytes(a).decode("latin-1").lower() for a in step.args] if step.action == "call" else []
        if words[:2] == ["config", "set"]:
            names.update(n for n in words[2::2] if n.replace("-", "").isalnum())
    return sorted(names)


def restore(server, values):
    if not values:
        return
    password = values.get("requirepass")
    with server.connect() as connection:
        if connection.call("PING")[0] == "-":
            for guess in ("secret", password or ""):
                connection.call("AUTH", guess)
        for name, value in values.items():
            connection.call("CONFIG", "SET", name, value)
        leave(connection)


class _Run:
    """One run of steps; remembers what MULTI has queued, to compare EXEC."""

    def __init__(self, pair, steps, protocol):
        self.steps = [s for s in steps if not s.snug_only or pair.tests_snug]
        self.left, self.right = Side(pair.reference, protocol), Side(pair.tested, protocol)
        self.queued = {}
        self.done = []
        self.mover = Mover(pair.tested.connect()) if pair.tiered else None

    def all(self, batch, drains):
        if batch:
            for group in batches(self.steps, AT_ONCE_TIERED if self.mover else AT_ONCE):
                self.group(group)
        else:
            for step in self.steps:
                self.one(step)
        if drains:
            for number in sorted(self.left.connections):
                if number not in self.queued:
                    self.check(parse_drain(number), *self.drain(number))

    def close(self):
        self.left.close()
        self.right.close()
        if self.mover:
            leave(self.mover.connection)

    def move(self):
        """Has values go to disk, so that the next step finds them there."""
        if self.mover:
            self.mover.move()

    def one(self, step):
        self.done.append(step)
        self.move()
        if step.action == "sleep":
            time.sleep(step.args[0] / 1000)
        elif step.action == "drain":
            self.check(step, *self.drain(step.connection))
        elif step.action == "send":
            self.left.send(step.connection, step.args)
            self.right.send(step.connection, step.args)
        elif step.action == "until":
            self.check(step, *(side.until(step) for side in (self.left, self.right)))
        elif step.action in ("raw", "rawend"):
            self.check(step, *self.raw(step))
        elif step.snug_only:
            self.right.send(step.connection, step.args)
            self.expect(step, self.right.frames_of_reply(step.connection))
        else:
            self.call(step)

    def group(self, steps):
        """Steps of one connection, sent as one pipeline."""
        if len(steps) == 1:
            self.one(steps[0])
            return
        self.move()
        number = steps[0].connection
        data = b"".join(encode(s.args) for s in steps)
        for side in (self.left, self.right):
            try:
                side.connection(number).send_raw(data)
            except Closed:
                pass
        for step in steps:
            self.done.append(step)
            wanted = self.left.frames_of_reply(number)
            self.check(step, wanted, self.right.frames_of_reply(number))

    def call(self, step):
        number = step.connection
        stays_queued = number in self.queued and not (step.name in ("exec", "reset") and len(step.args) == 1)
        many = step.name in MANY_FRAMES and not stays_queued
        self.left.send(number, step.args)
        wanted = self.left.drain(number) if many else self.left.frames_of_reply(number)
        self.right.send(number, step.args)
        got = self.right.drain(number, len(wanted)) if many else self.right.frames_of_reply(number)
        self.check(step, wanted, got)
        if step.keep_as:
            for side, frames in ((self.left, wanted), (self.right, got)):
                side.kept[step.keep_as.encode()] = to_bytes(frames[-1][1])

    def drain(self, number):
        wanted = self.left.drain(number)
        return wanted, self.right.drain(number, len(wanted))

    def raw(self, step):
        """Raw bytes, then all that comes until our PING's answer or the end."""
        outcome = []
        for side in (self.left, self.right):
            try:
                side.connection(step.connection).send_raw(b"".join(map(to_bytes, step.args)))
            except Closed:
                pass
            if step.action == "raw":
                outcome.append(side.drain(step.connection))
            else:
                outcome.append(side.frames_to_the_end(step.connection))
        return outcome

    def expect(self, step, got):
        text = " ".join(show(f) for f in got)
        normal = " ".join(text.split())
        wanted = " ".join(" ".join(step.expected).split())
        if normal != wanted:
            raise Mismatch(list(self.done), step, [("+", b"(written) " + wanted.encode())], got)

    def check(self, step, wanted, got):
        words = self.left.fill_in(step.args) if step.args else ["(waiting)"]
        wanted = [name_kept(f, self.left.kept) for f in wanted]
        got = [name_kept(f, self.right.kept) for f in got]
        if exceptions.left_everything(words):
            wanted, got = map(exceptions.in_any_order, (wanted, got))
        if exceptions.publishes(words):
            wanted, got = map(exceptions.reply_first, (wanted, got))
        wanted, got = map(exceptions.patterns_in_any_order, (wanted, got))
        if len(wanted) != len(got) or not all(
            self.same(step, words, a, b) for a, b in zip(wanted, got)
        ):
            raise Mismatch(list(self.done), step, wanted, got)
        self.follow_transaction(step, wanted)

    def same(self, step, words, a, b):
        if a == b:
            return True
        if step.exact:
            return False
        queued = self.queued.get(step.connection)
        if step.name == "exec" and queued and a[0] == b[0] == "*" and a[1] and b[1]:
            return len(a[1]) == len(b[1]) == len(queued) and all(
                exceptions.equal(w, x, y) for w, x, y in zip(queued, a[1], b[1])
            )
        return exceptions.equal(words, a, b)

    def follow_transaction(self, step, wanted):
        if step.action != "call" or not wanted:
            return
        last, number = wanted[-1], step.connection
        if step.name == "multi" and last == ("+", b"OK"):
            self.queued[number] = []
        elif (step.name in ("exec", "discard", "reset") and len(step.args) == 1) or last[0] == "x":
            self.queued.pop(number, None)
        elif number in self.queued and last == ("+", b"QUEUED"):
            self.queued[number].append(self.left.fill_in(step.args))


def name_kept(frame, kept):
    """The reply with a value kept as `$id` written as `$id`: each server has
    its own."""
    kind, value = frame
    if not kept:
        return frame
    if isinstance(value, bytes) and kind in "$+":
        for name, content in kept.items():
            if value == content:
                return (kind, b"$" + name)
    if kind == ":":
        for name, content in kept.items():
            if str(value).encode() == content:
                return ("$", b"$" + name)
    if isinstance(value, list) and kind == "%":
        return (kind, [(name_kept(k, kept), name_kept(v, kept)) for k, v in value])
    if isinstance(value, list) and kind in "*~>":
        return (kind, [name_kept(v, kept) for v in value])
    return frame


def parse_drain(number):
    from harness.cases import Step

    return Step("drain", number)


def batches(steps, sizes):
    """Consecutive plain calls of one connection, up to so many of them, the sizes in turn."""
    group, sizes = [], itertools.cycle(sizes)
    most = next(sizes)
    for step in steps:
        plain = step.action == "call" and step.name not in MANY_FRAMES and not step.keep_as and not step.snug_only
        if group and (not plain or step.connection != group[0].connection or len(group) == most):
            yield group
            group, most = [], next(sizes)
        if plain:
            group.append(step)
        else:
            yield [step]
    if group:
        yield group
