"""Nodes of replication, and a proxy that cuts the links between them."""

import selectors
import socket
import threading
import time

from harness import servers

#: Nothing is timed: this is how long a test waits for what must come.
PATIENCE_SECONDS = 60
#: No waiting for further replicas; what tests of replication look at.
FLAGS = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "local"]


def eventually(what, condition, patience=PATIENCE_SECONDS):
    """Waits until the condition gives something, and returns that."""
    deadline = time.monotonic() + patience
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"this never came: {what}"
        time.sleep(0.02)


def call(node, *args, db=None):
    """The payload of a reply; an error fails."""
    with node.connect() as connection:
        if db is not None:
            connection.call("SELECT", db)
        kind, payload = connection.call(*args)
        assert kind != "-", (args, payload)
        return payload


def refusal(node, *args):
    """The error that a command is answered with."""
    with node.connect() as connection:
        kind, payload = connection.call(*args)
        assert kind == "-", (args, kind, payload)
        return payload.decode()


def follow(replica, primary, port=None):
    """Makes a node a replica of another, by way of a port if one is given."""
    call(replica, "REPLICAOF", "127.0.0.1", port or primary.port)


def lead(node):
    call(node, "REPLICAOF", "NO", "ONE")


def is_up(replica):
    return replica.info().get("master_link_status") == "up"


def wait_until_up(*replicas):
    for replica in replicas:
        eventually(f"the link of {replica.kind} {replica.port}", lambda r=replica: is_up(r))


def wait_until_online(primary, replica):
    """The primary learns a moment later than the replica that everything has come."""
    eventually("it to be online", lambda: f"port={replica.port},state=online".encode() in call(primary, "INFO", "replication"))


def digest(node):
    return call(node, "DEBUG", "DIGEST")


def offset(node):
    return int(node.info()["master_repl_offset"])


def wait_until_same(primary, *replicas):
    """Waits until every replica has executed what the primary has, and holds the same."""

    def same():
        # Pings go on meanwhile, so a replica may be further than what was just asked.
        at = offset(primary)
        if not all(is_up(replica) and offset(replica) >= at for replica in replicas):
            return None
        found = digest(primary)
        return found if all(digest(replica) == found for replica in replicas) else None

    try:
        return eventually("equal digests", same)
    except AssertionError as error:
        facts = [(n.kind, n.port, offset(n), digest(n), differing(primary, n)) for n in (primary, *replicas)]
        raise AssertionError(f"{error}\n" + "\n".join(map(str, facts))) from error


def differing(one, other):
    """A few keys that two nodes do not hold alike, for whoever reads the failure."""
    found = []
    for db in range(16):
        with one.connect() as a, other.connect() as b:
            for connection in (a, b):
                connection.call("SELECT", db)
            keys = {key for c in (a, b) for _, key in c.call("KEYS", "*")[1]}
            for key in sorted(keys):
                both = [c.call("DEBUG", "DIGEST-VALUE", key)[1][0][1] for c in (a, b)]
                both += [c.call("PEXPIRETIME", key)[1] for c in (a, b)]
                if both[0] != both[1] or both[2] != both[3]:
                    found.append((db, key, a.call("TYPE", key)[1], both))
    return found[:5]


class Nodes:
    """Starts nodes, and stops them all."""

    def __init__(self, target):
        self.target, self.all = target, []

    def start(self, kind, *flags, **more):
        """A node of kind `snug` (the server under test) or `redis` (the reference)."""
        flags = [*FLAGS, *flags]
        node = self.target.start(*flags, **more) if kind == "snug" else servers.redis(*flags)
        self.all.append(node)
        return node

    def chain(self, *kinds):
        """Nodes each of which is a replica of the one before."""
        nodes = [self.start(kind) for kind in kinds]
        for primary, replica in zip(nodes, nodes[1:]):
            follow(replica, primary)
            wait_until_up(replica)
            wait_until_online(primary, replica)
        return nodes

    def kill(self, node):
        node.process.kill()
        node.process.wait()

    def restart(self, node):
        """Starts a node again that was killed: same port, same directory."""
        node.launch()
        node.wait_until_ready()

    def stop(self):
        for node in self.all:
            died = not node.alive()
            print(f"{node.kind} {node.port}{' (not running)' if died else ''}:\n{node.log(25)}")
            node.stop()


class Proxy:
    """Passes on connections to a port, until it is told to cut them.

    `cut()` ends all that are there. `allow(n)` lets so many bytes come back from the
    other side, over all connections, and then cuts; `refuse` ends new ones at once.
    While `pause_after` is a number nothing more comes back when so many bytes have. Bytes
    wait `delay` seconds, and with `split` come in parts of at most so many."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.pairs, self.left, self.refuse, self.ended = [], None, False, False
        self.passed, self.pause_after = 0, None
        self.delay, self.split = 0, 1 << 14
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.ended:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = None if self.refuse else socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                far = None
            if far is None:
                near.close()
                continue
            with self.lock:
                self.pairs.append((near, far))
            threading.Thread(target=self.carry, args=(near, far), daemon=True).start()

    def carry(self, near, far):
        selector = selectors.DefaultSelector()
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)
        try:
            while True:
                for key, _ in selector.select(0.05):
                    held = self.pause_after is not None and self.passed >= self.pause_after
                    if held and key.fileobj is far:
                        time.sleep(0.01)
                        continue
                    data = key.fileobj.recv(self.split)
                    if not data:
                        return
                    if self.delay:
                        time.sleep(self.delay)
                    if key.fileobj is far:
                        data, ends = self.permitted(data)
                        key.data.sendall(data)
                        if ends:
                            return
                    else:
                        key.data.sendall(data)
        except (OSError, ValueError):
            return
        finally:
            selector.close()
            near.close()
            far.close()

    def permitted(self, data):
        with self.lock:
            self.passed += len(data)
            if self.left is None:
                return data, False
            data = data[: self.left]
            self.left -= len(data)
            return data, self.left == 0

    def allow(self, count):
        with self.lock:
            self.left = count

    def cut(self):
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def stop(self):
        self.ended = True
        self.listener.close()
        self.cut()
