"""The case language: what a regression test is written in.

    == setrange pads with zeros          a case: title, then [flags]
    set k hello                          a command on connection 1
    2> get k                             a command on connection 2
    2>> get k                            sent, the reply is left for later
    2<                                   everything that waits on connection 2
    sleep 20                             milliseconds
    until state:ok cluster info          asks both until each reply holds this
    raw "*1\\r\\n$4\\r\\nPING\\r\\n"           bytes as they are; then we PING
    rawend "*1000000000\\r\\n"            bytes as they are; the server must close
    id = xadd s * f v                    keeps the reply, `$id` puts it in
    ! pexpiretime k                      exact: no exception applies
    snug: client no-touch on             asked of Snug alone, then compared with
    = +OK                                what is written here
    # comment

Words are split at spaces; "..." knows \\n \\r \\t \\\\ \\" \\xNN, '...' knows nothing,
and either may be followed by *N to repeat it: "ab"*1000. A bare word with a
range is so many words, and what | joins takes turns: `e{1..3}` is e1 e2 e3,
`f{1..2}|v{3..4}` is f1 v3 f2 v4, `m{1..2}|x` is m1 x m2 x.

Flags: [resp2] or [resp3] restricts a case to one protocol, [nodrain] leaves out
the check that nothing unread waits on any connection at the end.
"""

import itertools
import pathlib
import re
from dataclasses import dataclass, field

from harness.resp import to_bytes, word

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "differential" / "cases"


@dataclass
class Step:
    """One line of a case. `action`: call, send, drain, sleep, until, raw or rawend."""

    action: str
    connection: int = 1
    args: tuple = ()
    exact: bool = False
    keep_as: str = ""
    snug_only: bool = False
    expected: list = field(default_factory=list)
    line: int = 0

    @property
    def name(self):
        return to_bytes(self.args[0]).decode("latin-1").lower() if self.args else ""

    def text(self):
        """The step as a line to paste into a case file."""
        where = "" if self.connection == 1 else f"{self.connection}> "
        words = " ".join(word(a) for a in self.args)
        if self.action == "sleep":
            return f"sleep {self.args[0]}"
        if self.action == "drain":
            return f"{self.connection}<"
        if self.action in ("raw", "rawend", "until"):
            return f"{where}{self.action} {words}"
        if self.action == "send":
            return f"{self.connection}>> {words}"
        keep = f"{self.keep_as} = " if self.keep_as else ""
        return ("snug: " if self.snug_only else "") + keep + where + ("! " if self.exact else "") + words


@dataclass
class Case:
    title: str
    flags: list
    steps: list
    file: str = ""
    line: int = 0

    def runs_in(self, protocol):
        wanted = [f for f in self.flags if f.startswith("resp")]
        return not wanted or f"resp{protocol}" in wanted

    @property
    def drains(self):
        return "nodrain" not in self.flags


_WORD = re.compile(rb"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s"']\S*))(?:\*(\d+))?(?=\s|$)""")
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)")
_RANGE = re.compile(rb"\{(-?\d+)\.\.(-?\d+)\}")
_PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def split(line):
    """The words of a line, as bytes."""
    line = to_bytes(line).strip()
    words, at = [], 0
    while at < len(line):
        match = _WORD.match(line, at)
        if not match:
            raise ValueError(f"cannot read words of: {line!r}")
        double, single, bare, times = match.groups()
        if double is not None:
            value = _ESCAPE.sub(_unescape, double)
        elif single is not None:
            value = single
        else:
            value, times = bare, None
            if match.group(4):
                value = bare + b"*" + match.group(4)
            if _RANGE.search(value):
                words += ranges(value)
                at = match.end()
                continue
        words.append(value * int(times) if times is not None else value)
        at = match.end()
    return words


def ranges(word):
    """The words that a word with `{first..last}` stands for."""
    columns = []
    for part in word.split(b"|"):
        match = _RANGE.search(part)
        if not match:
            columns.append(itertools.repeat(part))
            continue
        before, after = part[: match.start()], part[match.end() :]
        first, last = int(match[1]), int(match[2])
        step = 1 if first <= last else -1
        columns.append([before + b"%d" % n + after for n in range(first, last + step, step)])
    return [w for row in zip(*columns) for w in row]


def _unescape(match):
    what = match.group(1)
    if what[:1] == b"x" and len(what) == 3:
        return bytes([int(what[1:], 16)])
    return _PLAIN.get(what, what)


#: Words that begin a line and are no command.
ACTIONS = (b"raw", b"rawend", b"sleep", b"until")
_CONNECTION = re.compile(r"^(\d+)(>>|>|<)\s*(.*)$")
_KEEP = re.compile(r"^([a-z][a-z0-9]*) = (.*)$")


def parse_line(text, number=0):
    """One step from one line."""
    text = text.strip()
    snug_only = text.startswith("snug:")
    if snug_only:
        text = text[5:].strip()
    keep = _KEEP.match(text)
    if keep:
        text = keep[2]
    connection, action = 1, "call"
    if match := _CONNECTION.match(text):
        connection, sign, text = int(match[1]), match[2], match[3]
        action = {">>": "send", ">": "call", "<": "drain"}[sign]
    if action == "drain":
        return Step("drain", connection, line=number)
    exact = text.startswith("! ")
    if exact:
        text = text[2:]
    words = split(text)
    if action == "call" and words[0] in ACTIONS:
        action, words = words[0].decode(), words[1:]
    if action == "sleep":
        words = [int(words[0])]
    return Step(action, connection, tuple(words), exact, keep[1] if keep else "", snug_only, line=number)


def parse(text, file=""):
    """All cases of a file."""
    cases = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if bare.startswith("== "):
            title = bare[3:]
            flags = re.findall(r"\[(\w+)\]", title)
            cases.append(Case(re.sub(r"\s*\[\w+\]", "", title).strip(), flags, [], file, number))
        elif bare.startswith("= "):
            cases[-1].steps[-1].expected.append(bare[2:])
        else:
            cases[-1].steps.append(parse_line(bare, number))
    return cases


def load(folder=""):
    """Every case of the .case files directly in a folder of `cases/`."""
    found = []
    for path in sorted((FOLDER / folder).glob("*.case")):
        found += parse(path.read_text(), path.stem)
    return found
