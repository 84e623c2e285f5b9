"""Starts the servers and all that works on them, watches memory, and says how it
went. Ends at the first failure, or when the time is over."""

import collections
import random
import statistics
import threading
import time
import traceback

from harness import servers
from harness.packing import record
from soak.eviction import Forgetful
from soak.mirrored import Mirrored
from soak.owner import Failure, Owner
from soak.weather import Pressure, change_settings, press_memory, read_slowly, send_away, visit

MB = 1_000_000
OWNERS = 4
#: Everything is packed, and packed anew, within a second or two.
AGGRESSIVE = [
    *["--pack-cold-after", "0", "--pack-min-size", "1", "--hz", "500", "--pack-dictionary-size", "2048"],
    *["--stream-node-max-entries", "100", "--pack-cpu-percent", "50"],
]
#: The last third's memory may be this much above the middle third's.
GROWTH_MAX = 1.10
#: Below this, thirds say nothing: the caches are still being filled, which takes
#: about three minutes.
FLAT_SECONDS = 300
#: What may stay after FLUSHALL, none of which grows with data: on each of the two
#: workers 4 MiB of unpacked blocks and two workspaces, and states of codecs. It
#: comes to 12.3 MB.
LEFT_BYTES_MAX = 14 * MB
#: How long all may take to notice the end and to compare everything once more,
#: and memory to be given back.
PATIENCE_SECONDS = 120


class Soak:
    """One soak. `run()` returns nothing and leaves its findings in `failures`,
    `counts`, `samples` and `report()`."""

    def __init__(self, target, seconds, seed, tier=False):
        """With a `tier`, values of all servers go to disk and come back all the time."""
        self.target, self.seconds, self.seed, self.tier = target, seconds, seed, tier
        self.names = [f"w{number}" for number in range(OWNERS)]
        self.pressure, self.counts = Pressure(), collections.Counter()
        self.failures, self.samples, self.facts = [], [], {}
        self.ending = threading.Event()

    def run(self):
        started = []
        try:
            self.reference = servers.redis()
            started.append(self.reference)
            flags = [*AGGRESSIVE, *(["--tier-path", "tier"] if self.tier else [])]
            self.snug = self.target.start(*flags, workers=2)
            started.append(self.snug)
            # It evicts when its tier is full.
            self.evicting = self.target.start(*flags, *(["--tier-max-bytes", "6mb"] if self.tier else []), workers=2)
            started.append(self.evicting)
            self.mirrored = None
            if self.target.is_snug:
                self.mirrored = self.target.start(*flags, "--enable-debug-command", "local", workers=2)
                started.append(self.mirrored)
            self.work()
            for server in filter(None, (self.snug, self.evicting, self.mirrored)):
                if not server.alive() or "panicked" in server.log(10_000):
                    self.failures.append(f"{server.command} died or panicked:\n{server.log()}")
        finally:
            codes = [(server.command, server.stop()) for server in started]
        self.failures += [f"{command} ended with {code}" for command, code in codes if code]

    def work(self):
        owners = [Owner(name, self.snug, self.reference, self.pressure, self.seed) for name in self.names]
        self.empty = self.look()
        jobs = [owner.run for owner in owners] + [Forgetful(self).run]
        jobs += [Mirrored(self).run] if self.mirrored else []
        weather = [change_settings, press_memory, visit, read_slowly, *([send_away] if self.tier else [])]
        if self.target.is_redis:
            weather.remove(change_settings)
        jobs += [lambda ending, job=job: job(self, ending) for job in weather]
        threads = [threading.Thread(target=self.guard, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        self.sample()
        self.ending.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
            if thread.is_alive():
                self.failures.append("a client still waits for an answer")
        for owner in owners:
            self.counts.update(owner.counts)
        if not self.failures:
            self.check_end()

    def guard(self, job):
        """A failure ends the soak."""
        try:
            job(self.ending)
        except Failure as failure:
            self.failures.append(str(failure))
            self.ending.set()
        except BaseException:
            self.failures.append(traceback.format_exc())
            self.ending.set()

    def look(self):
        """Memory now: what the server counts, and what the kernel does."""
        return int(self.snug.info()["used_memory"]), self.snug.rss_bytes()

    def sample(self):
        begin = time.monotonic()
        while (now := time.monotonic() - begin) < self.seconds and not self.ending.is_set():
            try:
                self.samples.append((now, *self.look()))
            except BaseException:
                self.failures.append(f"INFO was not answered\n{traceback.format_exc()}")
                return
            self.ending.wait(min(2, self.seconds / 50))

    def thirds(self):
        """The median of used memory and of resident memory in each third."""
        parts = [[s for s in self.samples if third <= 3 * s[0] / self.seconds < third + 1] for third in range(3)]
        return [[int(statistics.median(s[column] for s in part)) for part in parts] for column in (1, 2) if all(parts)]

    def check_end(self):
        """Nothing evicted, memory flat; and nothing left when all is deleted."""
        info = self.snug.info()
        self.facts.update({name: info[name] for name in ("strings_packed", "blocks_packed", "evicted_keys", "expired_keys") if name in info})
        self.facts["evicted_keys of the evicting server"] = self.evicting.info()["evicted_keys"]
        if info["evicted_keys"] != "0":
            self.failures.append(f"{info['evicted_keys']} keys were evicted under noeviction")
        if self.seconds >= FLAT_SECONDS:
            for what, (_, middle, last) in zip(("used", "resident"), self.thirds()):
                if last > GROWTH_MAX * middle:
                    self.failures.append(f"{what} memory grew from {middle} to {last} bytes")
        with self.snug.connect() as c:
            if c.call("FLUSHALL") != ("+", b"OK"):
                self.failures.append("FLUSHALL failed")
            self.check_empty(c)

    def referred(self, c):
        """Dictionaries that something refers to."""
        return [row for row in map(record, c.call("SNUG", "DICTIONARIES")[1]) if row[b"references"]]

    def check_empty(self, c):
        """Large values are freed in the background, so it is waited for."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (now := self.look())[0] > self.empty[0] + LEFT_BYTES_MAX and time.monotonic() < deadline:
            time.sleep(0.05)
        self.emptied = now
        if now[0] > self.empty[0] + LEFT_BYTES_MAX:
            self.failures.append(f"after FLUSHALL {now[0]} bytes are used; at the start it was {self.empty[0]}")
        if self.target.is_snug:
            info = self.snug.info()
            left = {name: info[name] for name in ("raw_bytes_string", "packed_from_bytes_string", "packed_bytes_string") if info[name] != "0"}
            # A block that is being packed keeps its dictionary until it is done.
            while (held := self.referred(c)) and time.monotonic() < deadline:
                time.sleep(0.05)
            if left or held:
                self.failures.append(f"the database is empty, yet counts {left} and dictionaries are referred to: {held[:3]}")

    def report(self):
        lines = [f"soak of {self.seconds} s, seed {self.seed}: {'FAILED' if self.failures else 'nothing lost'}"]
        lines += [f"  {count:>12,}  {what}" for what, count in sorted(self.counts.items())]
        lines += [f"  {self.pressure.times:>12,}  times memory was made short"]
        lines += [f"  {int(count):>12,}  {what}" for what, count in sorted(self.facts.items())]
        for what, medians in zip(("used memory", "resident memory"), self.thirds()):
            lines.append(f"  {what}, median of each third: " + ", ".join(f"{median / MB:.1f} MB" for median in medians))
        if hasattr(self, "emptied"):
            lines.append("  used and resident memory: at the start {:.1f}, {:.1f} MB; after FLUSHALL {:.1f}, {:.1f} MB".format(*(n / MB for n in (*self.empty, *self.emptied))))
        return "\n".join(lines + ["\n" + failure for failure in self.failures])


def random_seed():
    return random.randrange(10**6)
