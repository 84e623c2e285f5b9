-- What `bench/capture.py` has wrk send: PUT of values of five kinds, each when it is due.
--
-- Arguments: a file of values, each behind a line of its kind, its time to live, its type and its
-- length; the rate; and a kind and its share of the rate, as often as there are kinds.
--
-- wrk asks `delay` how many milliseconds to wait before it asks `request` for the next one
-- to send. The n-th is due at n / rate after the first, whichever connection sends it; as
-- many as there are connections may be under way.

local ffi = require("ffi")
ffi.cdef [[
  struct moment { long seconds; long nanoseconds; };
  int clock_gettime(int clock, struct moment *now);
]]
local moment = ffi.new("struct moment")

local function now()
  ffi.C.clock_gettime(1, moment)
  return tonumber(moment.seconds) + tonumber(moment.nanoseconds) * 1e-9
end

-- Sessions between their first write and their third.
local OPEN = 64

local pool, kinds, shares, rate = {}, {}, {}, 0
local began, planned, sent, first, sessions = nil, 0, 0, 1, {}
-- Of each kind, how many were sent: wrk's main thread reads it in `done`.
counts = ""
local count = {}

function init(args)
  math.randomseed(1)
  local file = assert(io.open(args[1], "rb"))
  rate = tonumber(args[2])
  local share = 0
  for at = 3, #args, 2 do
    share = share + tonumber(args[at + 1])
    kinds[#kinds + 1], shares[#shares + 1] = args[at], share
    pool[args[at]], count[args[at]] = {}, 0
  end
  for line in file:lines() do
    local kind, ttl, mime, length = line:match("^(%S+) (%S+) (%S+) (%d+)$")
    local head = " HTTP/1.1\r\nHost: h\r\nSnug-TTL: " .. ttl .. "\r\nContent-Type: " .. mime .. "\r\nContent-Length: " .. length .. "\r\n\r\n"
    table.insert(pool[kind], head .. file:read(tonumber(length)))
    file:read(1)
  end
  file:close()
end

local function draw()
  local at = math.random() * shares[#shares]
  for n = 1, #kinds do
    if at < shares[n] then return kinds[n] end
  end
end

-- The session to write now: one of those that were begun before, or a new one.
local function session()
  local number, writes = sent, 0
  if #sessions - first + 1 >= OPEN then
    number, writes = sessions[first][1], sessions[first][2]
    sessions[first] = nil
    first = first + 1
  end
  if writes < 2 then sessions[#sessions < first and first or #sessions + 1] = { number, writes + 1 } end
  return number
end

function delay()
  began = began or now()
  local due = began + planned / rate
  planned = planned + 1
  return math.max(0, math.ceil((due - now()) * 1000))
end

function request()
  sent = sent + 1
  local kind = draw()
  local number = kind == "session" and session() or sent
  count[kind] = count[kind] + 1
  if sent % 500 == 0 then
    local told = {}
    for n = 1, #kinds do told[n] = kinds[n] .. "=" .. count[kinds[n]] end
    counts = table.concat(told, " ")
  end
  local values = pool[kind]
  return "PUT /content/" .. kind .. ":" .. number .. values[math.random(#values)]
end

local threads = {}
function setup(thread) threads[1] = thread end

function done(summary, latency)
  print(string.format("told: seconds=%f requests=%d bad=%d p50=%f p99=%f %s", summary.duration / 1e6, summary.requests,
    summary.errors.status + summary.errors.read + summary.errors.write + summary.errors.timeout + summary.errors.connect,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, threads[1]:get("counts")))
end
