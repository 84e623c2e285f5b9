"""Lua programs drawn at random: what a script may do to values, to errors and to keys.

Each is deterministic: it looks at no clock, no address and no order of a table's keys,
so both servers must answer it alike. What it loops over is bounded.
"""

NAMES = ["a", "b", "c", "d"]
KEYS = ["{k}1", "{k}2", "{k}3"]
STRINGS = [
    "''", "'x'", "'10'", "'-3.5'", "'1e3'", "'hello world'", r"'a\0b\255'", "'%d+'", "'(%w)(%w*)'", "'[^a-c]-o'",
    "'%b()'", "'k=v, k2=v2'", "'%1'", "'('", "'%'", "('ab'):rep(200)", r"'\r\n'", "'0x1F'", "'nan'", "'{\"a\":[1,2,{}]}'",
]
NUMBERS = ["0", "1", "2", "-1", "3.7", "-2.5", "1e15", "2^31", "-2^31", "2^53", "7919", "0/0", "1/0", "-1/0", "255"]
BINARY = ["+", "-", "*", "/", "%", "..", "==", "~=", "<", "<=", "and", "or", "^"]
#: Functions with the kinds of their arguments: s(tring), n(umber), t(able), v(alue), f(unction).
FUNCTIONS = [
    ("string.len", "s"), ("string.sub", "snn"), ("string.upper", "s"), ("string.reverse", "s"), ("string.byte", "snn"),
    ("string.rep", "sN"), ("string.find", "ss"), ("string.find", "ssn"), ("string.match", "ss"), ("string.gsub", "sss"),
    ("string.gsub", "ssf"), ("string.gsub", "sst"), ("string.format", "Fv"), ("string.char", "B"), ("tostring", "s"),
    ("tostring", "n"), ("tonumber", "v"), ("tonumber", "sB"), ("math.floor", "n"), ("math.max", "nn"), ("math.fmod", "nn"),
    ("math.abs", "n"), ("math.modf", "n"), ("math.frexp", "n"), ("type", "v"), ("select", "Nvvv"), ("select", "Hvv"),
    ("unpack", "t"), ("unpack", "tNN"), ("table.concat", "t"), ("table.concat", "ts"), ("table.concat", "tsNN"),
    ("table.getn", "t"), ("table.remove", "t"), ("table.remove", "tN"), ("table.maxn", "t"), ("rawlen", "t"),
    ("rawequal", "vv"), ("pcall", "fvv"), ("pcall", "v"), ("bit.band", "nn"), ("bit.lshift", "nN"), ("bit.tohex", "nN"),
    ("bit.bxor", "nv"), ("bit.rol", "nN"), ("bit.arshift", "nN"), ("cjson.encode", "v"), ("cjson.decode", "s"),
    ("cmsgpack.pack", "vv"), ("cmsgpack.unpack", "s"), ("struct.pack", "Pnn"), ("struct.unpack", "Ps"), ("struct.size", "P"),
    ("redis.sha1hex", "s"), ("redis.error_reply", "s"), ("redis.status_reply", "s"), ("redis.setresp", "R"),
    ("redis.error_reply", "v"), ("assert", "vE"), ("error", "E"), ("error", "E"), ("loadstring", "s"), ("next", "T"), ("ipairs", "v"),
    ("setmetatable", "tt"), ("getmetatable", "t"), ("rawget", "tv"), ("coroutine.wrap", "v"), ("tostring", "H"),
]
FORMATS = ["'%d'", "'%5.2f'", "'%s'", "'%q'", "'%x'", "'%c'", "'%%'", "'%10s|'", "'%-5d|'", "'%g'", "'%d %d'", "'%y'", "'%05i'"]
PACKS = ["'>I2I4'", "'<i8'", "'bBhH'", "'s'", "'d'", "'>lL'", "'c0'", "'c3'", "'!4bi'", "'f'", "'i3'", "'z'", "'I40'"]
COMMANDS = [
    "'set', KEYS[1], {s}", "'get', KEYS[1]", "'incr', KEYS[1]", "'incrbyfloat', KEYS[1], {n}", "'append', KEYS[1], {s}",
    "'hset', KEYS[2], {s}, {s}", "'hgetall', KEYS[2]", "'hincrby', KEYS[2], 'f', {N}", "'rpush', KEYS[3], {s}, {n}",
    "'lrange', KEYS[3], 0, -1", "'lpop', KEYS[3]", "'zadd', KEYS[2], {n}, {s}", "'zscore', KEYS[2], {s}",
    "'zrange', KEYS[2], 0, -1, 'withscores'", "'sadd', KEYS[1], {s}", "'smembers', KEYS[1]", "'sismember', KEYS[1], {s}",
    "'del', KEYS[1], KEYS[2]", "'type', KEYS[3]", "'exists', KEYS[1], KEYS[3]", "'ttl', KEYS[1]", "'expire', KEYS[1], 100",
    "'mget', KEYS[1], KEYS[2]", "'strlen', KEYS[1]", "'getrange', KEYS[1], {N}, {N}", "'setrange', KEYS[1], 3, {s}",
    "'nosuch', 1", "'get'", "'set', KEYS[1]", "'ping'", "'echo', {s}", "'subscribe', 'x'", "'lindex', KEYS[3], {N}",
    "'set', {s}, {v}", "{v}", "'xadd', KEYS[3], '1-*', 'f', {s}", "'object', 'encoding', KEYS[1]", "'select', 1",
    "'zadd', KEYS[2], 'incr', {n}, 'm'", "'geoadd', KEYS[2], 1.5, 2.5, 'm'", "'config', 'get', 'nosuch'",
]


class Program:
    """One program: `text()`."""

    def __init__(self, random):
        self.random, self.depth = random, 0

    def text(self):
        draws = self.random
        body = [self.statement() for _ in range(draws.randint(1, 6))]
        heads = [f"local {name} = {self.value()}" for name in NAMES]
        if draws.random() < 0.25:
            heads.insert(0, f"redis.setresp({draws.choice([2, 3])})")
        return "\n".join([*heads, *body, f"return {self.result()}"])

    def pick(self, options):
        return self.random.choice(options)

    def result(self):
        kind = self.random.random()
        if kind < 0.3:
            return self.call()
        if kind < 0.6:
            return "{" + ", ".join(self.value() for _ in range(self.random.randint(0, 4))) + "}"
        if kind < 0.75:
            return self.pick([
                "{double=%s}", "{map={x=%s}}", "{set={[%s]=true}}", "{big_number=tostring(%s)}", "{ok=tostring(%s)}",
                "{err=tostring(%s)}", "{verbatim_string={format='txt', string=tostring(%s)}}", "{[1]=%s, [3]=3}",
                "{map={}}", "{double=1/%s}", "{err='MY ' .. tostring(%s)}",
            ]).replace("%s", self.pick([*NAMES, *NUMBERS, *STRINGS]))
        return self.value()

    def value(self):
        return self.of(self.pick("ssnntv"))

    def of(self, kind):
        if kind == "v":
            kind = self.pick("ssnntxxbc")
        self.depth += 1
        try:
            if kind == "x" or (self.depth < 4 and kind in "snt" and self.random.random() < 0.25):
                return self.pick(NAMES) if self.depth > 3 or self.random.random() < 0.6 else self.expression()
            return {
                "s": lambda: self.pick(STRINGS),
                "n": lambda: self.pick(NUMBERS),
                "N": lambda: self.pick(["0", "1", "2", "3", "-1", "-2", "5", "40", "100"]),
                "B": lambda: self.pick(["2", "10", "16", "36", "65", "0", "256"]),
                "H": lambda: "'#'",
                # redis-server 7.0 dies of an error that is a table without `err`.
                "E": lambda: f"tostring({self.of('s')})",
                "R": lambda: self.pick(["2", "3", "4"]),
                "F": lambda: self.pick(FORMATS),
                "P": lambda: self.pick(PACKS),
                "T": lambda: "{}",
                "b": lambda: self.pick(["true", "false", "nil"]),
                "t": self.table,
                "f": self.function,
                "c": self.call,
            }[kind]()
        finally:
            self.depth -= 1

    def table(self):
        if self.depth > 3:
            return "{}"
        items = [self.of(self.pick("snnv")) for _ in range(self.random.randint(0, 4))]
        # One field at most, for the order of several is not told.
        if self.random.random() < 0.2:
            items.append(f"x = {self.of('v')}")
        return "{" + ", ".join(items) + "}"

    def function(self):
        if self.depth > 3:
            return "function(...) return ... end"
        return self.pick([
            f"function(x, y) return {self.of('v')} end", f"function(x) return x, {self.of('n')} end", "function(...) return ... end",
            f"function() error({self.of('E')}) end", f"function() return {self.call()} end", "tostring", "redis.sha1hex",
        ])

    def call(self):
        if self.random.random() < 0.4 and self.depth < 4:
            how = "redis.pcall" if self.random.random() < 0.7 else "redis.call"
            command = self.pick(COMMANDS)
            for kind in "snNv":
                while "{" + kind + "}" in command:
                    command = command.replace("{" + kind + "}", self.of(kind), 1)
            return f"{how}({command})"
        name, kinds = self.pick(FUNCTIONS)
        # `pcall()` alone calls its own status in Redis.
        if self.random.random() < 0.05 and name != "pcall":
            kinds = kinds[:-1]
        return f"{name}({', '.join(self.of(kind) for kind in kinds)})"

    def expression(self):
        return self.pick([
            lambda: f"({self.of('v')} {self.pick(BINARY)} {self.of('v')})",
            lambda: f"(#{self.of('s')})",
            lambda: f"(not {self.of('v')})",
            lambda: f"(-{self.of('n')})",
            lambda: f"({self.call()})",
            lambda: f"({self.pick(NAMES)})[{self.of('n')}]",
        ])()

    def statement(self):
        self.depth += 1
        try:
            name = self.pick(NAMES)
            simple = [
                lambda: f"{name} = {self.value()}",
                lambda: f"{name} = {self.call()}",
                lambda: f"local _, e = pcall(function() {name} = {self.call()} end) if e then {name} = e end",
                lambda: f"{self.call()}".join(["local _ = ", ""]),
                lambda: f"if type({name}) == 'table' then {name}[{self.of('N')}] = {self.value()} end",
                lambda: "undefined_global = 1" if self.random.random() < 0.1 else f"{name} = {self.value()}",
            ]
            if self.depth > 2:
                return self.pick(simple)()
            return self.pick([
                *simple, *simple,
                lambda: f"for i = 1, {self.of('N')} do if i > 50 then break end {self.statement()} end",
                lambda: f"if {self.value()} then {self.statement()} else {self.statement()} end",
                lambda: f"local n = 0 while n < 20 do n = n + 1 {self.statement()} end",
                lambda: f"for w in string.gmatch({self.of('s')}, {self.of('s')}) do {name} = w break end",
                lambda: f"{name} = coroutine.wrap(function() coroutine.yield({self.value()}) end)()",
            ])()
        finally:
            self.depth -= 1
