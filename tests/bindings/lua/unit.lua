-- The binding for Lua: two workers in this process, and what a user may do to them. usage: luajit unit.lua
io.stdout:setvbuf("no")
package.path = arg[0]:gsub("unit%.lua$", "?.lua;") .. package.path
local distag = require("distag")
local ffi = require("ffi")

local units = require("units")
local test, same, fails, group = units.test, units.same, units.fails, units.group
local function echo(x) return x end
local function square(x) return x * x end
local function hang()
  local call = distag.current_call()
  while not call:is_cancelled() do coroutine.yield() end
end

test("calls both ways, at once, nested back to the caller", function()
  local functions = { double = function(x) return 2 * x end, echo = echo }
  functions.ask_back = function(x)
    local call = distag.current_call()
    return call.worker:call(call.caller, "double", x) + 1
  end
  group(functions, function(a, b)
    same(a:call("b", "double", 21), 42)
    same(b:call("a", "double", 21), 42)
    same(a:call("b", "ask_back", 5), 11)
    local futures = {}
    for index = 1, 1000 do futures[index] = a:call_async("b", "double", index) end
    for index, answer in ipairs(distag.wait_all(futures)) do same(answer, 2 * index) end
    local routines = {}
    for index = 1, 8 do
      routines[index] = distag.spawn(function()
        for each = 1, 10 do same(a:call("b", "ask_back", index * each), 2 * index * each + 1) end
        return index
      end)
    end
    for index, routine in ipairs(routines) do same(distag.join(routine), index) end
  end)
end)

test("one event wakes all coroutines that wait for a future", function()
  group({ echo = echo }, function(a)
    local future, got, events = a:call_async("b", "echo", 7), {}, 0
    for index = 1, 20 do distag.spawn(function() got[index] = future:await() end) end
    while #got < 20 do events = events + distag.poll(1) end
    for _, each in ipairs(got) do same(each, 7) end
    assert(events < 10, events .. " events") -- the call and its answer, and what is left of the start
  end)
end)

test("functions that fail with anything", function()
  local functions = { echo = echo, text = function() error("no such user") end, number = function() error(7, 0) end,
                      nothing = function() error() end, table = function() error({}) end,
                      told = function() error({ message = "of a table", code = 7 }) end,
                      mute = function() error(setmetatable({}, { __tostring = function() error("mute") end })) end,
                      own = function() error(distag.error("not today", 1042)) end }
  functions.pass_on = function() return distag.current_call().worker:call("b", "own") end
  functions.answer = function() return print end
  group(functions, function(a)
    local problem = fails(1000, "no such user", a.call, a, "b", "text")
    same(problem.origin_rank, 1)
    same(problem.may_have_run, true)
    same(problem.class, "user")
    fails(1000, "error: 7", a.call, a, "b", "number")
    fails(1000, "error: nil", a.call, a, "b", "nothing")
    fails(1000, "error: table", a.call, a, "b", "table")
    fails(1000, "error: of a table", a.call, a, "b", "told")
    fails(1000, "a table without a text", a.call, a, "b", "mute")
    same(fails(1042, "not today", a.call, a, "b", "own").origin_rank, 1)
    same(fails(1042, "not today", a.call, a, "a", "pass_on").origin_rank, 1)
    fails(10, "answer: a function is no value", a.call, a, "b", "answer")
    same(fails(12, "no_such_function", a.call, a, "b", "no_such_function").may_have_run, false)
    same(a:call("b", "echo", 3), 3)
  end)
end)

test("a finalizer that calls and takes events loses no call", function()
  local ended, mixed = 0, 0
  local function litter(a)
    local proxy = newproxy(true)
    getmetatable(proxy).__gc = function()
      if a.handle == nil then return end
      ended = ended + 1
      local own = ended
      local _, problem = pcall(a.call_with, a, { timeout = 100 }, "b", "fail", own)
      if not distag.is_error(problem) then return end -- a finalizer cannot yield
      local is_own = problem.code == 1000 + own and problem.message:find("of " .. own .. "$")
      if not is_own then mixed = mixed + 1 end
    end
  end
  local functions = { fail = function(x) error(distag.error("of " .. x, 1000 + x)) end, list = function(a, x)
    for _ = 1, 5 do litter(a) end
    return { x, { x } }
  end }
  group(functions, function(a)
    local function list(x) return functions.list(a, x) end
    a:register("list of a", list)
    for index = 1, 200 do
      litter(a)
      same(a:call_with({ timeout = 100 }, "a", "list of a", index), { index, { index } })
      fails(1000000 + index, "of " .. 999000 + index, a.call, a, "b", "fail", 999000 + index)
    end
    assert(ended > 100 and mixed == 0, ended .. " " .. mixed)
  end)
end)

test("the code of an error is one that C has", function()
  local functions = { fail = function(code) error(distag.error("odd", code)) end }
  group(functions, function(a)
    for _, code in ipairs({ 2 ^ 31, -5, 0, 1.5, 0 / 0, 1 / 0 }) do fails(1000, "odd", a.call, a, "b", "fail", code) end
    fails(2147483647, "odd", a.call, a, "b", "fail", 2147483647)
  end)
end)

test("a deadline, a cancellation, a second offer of a name", function()
  local held = {}
  local functions = { hang = function()
    held[#held + 1] = true
    while held do coroutine.yield() end
  end }
  group(functions, function(a)
    same(fails(50, "", a.call_with, a, { timeout = 0.05 }, "b", "hang").class, "gave_up")
    local late, future = #held, a:call_async("b", "hang") -- the first may have been too late to run at all
    while #held == late do distag.poll(0.02) end
    future:cancel()
    fails(51, "", future.await, future)
    fails(11, "hang", a.register, a, "hang", echo)
    held = nil
  end)
end)

test("values of every kind, there and back", function()
  group({ echo = echo }, function(a)
    for _, each in ipairs({ true, false, -1, 1.5, "", "Größe", 2 ^ 53 - 1 }) do
      same(a:call("b", "echo", each), each)
    end
    same(a:call("b", "echo", nil), nil)
    same(1 / a:call("b", "echo", -0.0), -math.huge)
    local nan = a:call("b", "echo", 0 / 0)
    assert(nan ~= nan)
    same(a:call("b", "echo", 9007199254740993LL), 9007199254740993LL)
    same(a:call("b", "echo", -9223372036854775807LL - 1), -9223372036854775807LL - 1)
    same(a:call("b", "echo", { 1, "two", distag.null, { 3.5 } }), { 1, "two", distag.null, { 3.5 } })
    same(a:call("b", "echo", { a = { b = { 1, distag.map({ c = distag.null }) } } }).a.b[2].c, distag.null)
    same(next(a:call("b", "echo", distag.map())), nil)
    same(a:call("b", "echo", distag.bytes("\0\255x")).data, "\0\255x")
    same(tostring(a:call("b", "echo", { distag.bytes("\0\255x") })[1]), "\0\255x")
    local long = ("0123456789abcdef"):rep(65536)
    same(a:call("b", "echo", distag.bytes(long)).data, long)
    same(a:call("b", "echo", distag.tensor({ { 1, 2 }, { 3, 4 } })):numbers(), { 1, 2, 3, 4 })
    local made = a:remote("b", "echo", { 1, 2, 3 })
    same(made:owner(), "b")
    same(made:fetch(), { 1, 2, 3 })
    same(select("#", a:remote("b", "echo", 1)), 1)
    same(a:call("b", "echo", a:remote("b", "echo", 7)):fetch(), 7)
    same(a:call("b", "echo", 2 ^ 53), 2 ^ 53)
    same(type(a:call("b", "echo", 2 ^ 53)), "number") -- it may stand for 2^53 + 1: no integer
  end)
  same(distag.tensor(9007199254740993LL, "int64"):item(), 9007199254740993LL)
  same(type(distag.tensor(5, "int64"):item()), "number")
end)

test("numbers are rounded to a float32, to infinity too, as in Python", function()
  same(distag.tensor({ 1e300, -1e300, 0.1, 1e-300 }):numbers(), { math.huge, -math.huge, 0.10000000149011612, 0 })
  local x = distag.tensor({ 1, 2 })
  x:write({ 1e300, 3 })
  same(x:numbers(), { math.huge, 3 })
  same(distag.tensor(1e300, "float64"):item(), 1e300)
end)

test("a wait ends with its own event", function()
  local poll, taken, last = distag.poll, 0, nil
  distag.poll = function(seconds)
    last = poll(seconds)
    return last
  end
  local is_ok, problem = pcall(group, { echo = echo }, function(a)
    for index = 1, 50 do
      last = 1
      same(a:call("b", "echo", index), index)
      if last > 0 then taken = taken + 1 end
    end
  end)
  distag.poll = poll
  assert(is_ok, problem)
  assert(taken > 25, taken .. " of 50 waits took an event: the others waited for none")
end)

test("a wait goes to the worker of its future, and a closed future has none", function()
  local gone = {}
  for index = 1, 5 do
    gone[index] = distag.worker({ name = "g", world_size = 1, rendezvous = "inproc://gone" .. index })
    gone[index]:start(20)
    distag.join(distag.spawn(function() gone[index]:shutdown(20) end))
  end
  group({ echo = echo }, function(a)
    local rounds = tonumber(os.getenv("DISTAG_ROUNDS") or 10)
    for index = 1, rounds do
      same(distag.join(distag.spawn(function() return a:call("b", "echo", index) end)), index)
    end
    local closed = a:call_async("b", "echo", 1)
    closed:close()
    fails(10, "the future is closed", closed.await, closed)
    fails(10, "the future is closed", closed.is_done, closed)
  end)
  for _, each in ipairs(gone) do each:close() end
end)

test("what a coroutine raises is for distag.join, else for stderr", function()
  local written, stderr = "", io.stderr
  group({ echo = echo }, function(a)
    local function fail()
      a:call("b", "echo", 1)
      error(distag.error("not today", 1042))
    end
    rawset(io, "stderr", { write = function(_, ...) written = written .. table.concat({ ... }) end })
    local routine = distag.spawn(fail)
    while coroutine.status(routine) ~= "dead" do distag.poll(0.02) end
    rawset(io, "stderr", stderr)
    assert(written:find("not today", 1, true) and written:find("unit.lua", 1, true), written)
    fails(1042, "not today", distag.join, routine)
    fails(1042, "not today", distag.join, distag.spawn(function() distag.join(distag.spawn(fail)) end))
    same({ distag.join(distag.spawn(function() return 1, a:call("b", "echo", 2) end)) }, { 1, 2 })
    fails(10, "a coroutine of distag.spawn is wanted", distag.join, 1)
    local itself
    itself = distag.spawn(function()
      a:call("b", "echo", 1)
      return distag.join(itself)
    end)
    fails(10, "a coroutine would wait for itself", distag.join, itself)
  end)
end)

test("a coroutine that yields goes on at the next poll", function()
  local turns, seen = {}, {}
  local function count(name, times)
    for index = 1, times do
      turns[#turns + 1] = name .. index
      seen[name] = distag.current_call()
      coroutine.yield()
      assert(distag.current_call() == seen[name], "the call of another coroutine")
    end
    return times
  end
  local one, two = distag.spawn(count, "x", 2), distag.spawn(count, "y", 3)
  same(turns, { "x1", "y1" })
  same(distag.poll(0), 2)
  same(turns, { "x1", "y1", "x2", "y2" })
  same({ distag.join(one), distag.join(two), distag.poll(0) }, { 2, 3, 0 })
  group({ count = count, echo = echo }, function(a)
    same(distag.wait_all({ a:call_async("b", "count", "p", 3), a:call_async("b", "count", "q", 2) }), { 3, 2 })
    -- Those in line go on once each, also where one of them waits, polls or is gone on with by the user.
    local nested = {}
    local function nest(index)
      coroutine.yield()
      nested[index] = 1
      distag.poll(0)
      same(a:call("b", "echo", index), index)
      coroutine.yield()
      nested[index] = nested[index] + 1
    end
    local routines = {}
    for index = 1, 5 do routines[index] = distag.spawn(nest, index) end
    local own = distag.spawn(function()
      coroutine.yield()
      return a:call("b", "echo", 9), distag.join(routines[5])
    end)
    assert(coroutine.resume(own))
    same(distag.join(own), 9)
    for _, each in ipairs(routines) do distag.join(each) end
    same(nested, { 2, 2, 2, 2, 2 })
    same(distag.poll(0), 0)
  end)
end)

test("what has yielded takes no core, and goes with its worker", function()
  local turns = 0
  group({ hang = function() while true do turns = turns + 1; coroutine.yield() end end }, function(a)
    local future = a:call_async("b", "hang")
    while turns == 0 do distag.poll(0.02) end
    local begun, ended = turns, os.time() + 2
    while os.time() < ended do distag.poll(0.02) end
    assert(turns - begun < 20000, turns - begun .. " turns in 2 s") -- one a millisecond
    future:close()
  end)
  collectgarbage()
  collectgarbage()
  same({ distag.handle_count(), distag.poll(0) }, { 0, 0 })
end)

test("errors are joined with texts, and all that is given has a text", function()
  local odd = setmetatable({}, { __tostring = function() error("mute") end })
  local problem = distag.error("not today", 1042)
  same({ "x: " .. problem, problem .. " y", problem .. problem, 1 .. problem },
       { "x: not today", "not today y", "not todaynot today", "1not today" })
  assert(not pcall(function() return problem .. {} end))
  same({ tostring(distag.error(5)), "" .. distag.error(odd) }, { "5", "a table without a text" })
  fails(10, "no dtype a table without a text", distag.tensor, 1, odd)
  fails(10, "no option a table without a text", distag.worker, { [odd] = 1 })
  fails(10, "not a table without a text", distag.visualize_sharding, "", nil, { format = odd })
end)

test("a function closes its own worker", function()
  local closed
  local function leave()
    closed = distag.current_call().worker
    closed:register("more", echo)
    closed:close()
    closed:close()
  end
  local function make(rank)
    return distag.worker({ rank = rank, world_size = 2, rendezvous = "inproc://own", functions = { leave = leave } })
  end
  local a, b = make(0), make(1)
  distag.wait_all({ a:start_async(20), b:start_async(20) })
  fails(40, "", a.call, a, "worker1", "leave")
  fails(10, "the worker is closed", b.name, b)
  fails(10, "the worker is closed", closed.name, closed)
  a:close()
end)

test("a worker in no variable serves until it has left", function()
  local function leave() distag.current_call().worker:shutdown_async(20) end
  local function start(rank, functions)
    local worker = distag.worker({ rank = rank, world_size = 2, rendezvous = "inproc://held", functions = functions })
    return worker:start_async(20), rank == 0 and worker or nil
  end
  local future, a = start(0, {})
  distag.wait_all({ future, (start(1, { echo = echo, leave = leave })) })
  for _ = 1, 5 do collectgarbage() end
  same(a:call("worker1", "echo", 3), 3)
  a:call("worker1", "leave")
  a:shutdown(20)
  a:close()
end)

test("a worker that has served leaves by its close, and what waits for it goes on", function()
  local functions, workers, raised = { echo = echo, hang = hang }, {}, {}
  functions.shut = function() workers[3]:close() end
  for rank = 0, 2 do
    workers[rank + 1] = distag.worker({ rank = rank, world_size = 3, rendezvous = "inproc://closed",
                                        functions = functions })
  end
  local a, b, c, stderr = workers[1], workers[2], workers[3], io.stderr
  distag.wait_all({ a:start_async(20), b:start_async(20), c:start_async(20) })
  same(a:call("worker1", "echo", 1), 1)
  local on_b, on_a = b:call_async("worker0", "hang"), a:call_async("worker2", "hang")
  local routine = distag.spawn(function() return on_b:await() end)
  local other = distag.spawn(function()
    raised[1], raised[2] = pcall(on_a.await, on_a)
    return 5
  end)
  rawset(io, "stderr", { write = function() end }) -- of the routine that none has joined yet
  b:close()
  rawset(io, "stderr", stderr)
  fails(51, "shut down", distag.join, routine)
  fails(51, "shut down", on_b.await, on_b)
  local deadline = os.time() + 60
  repeat distag.poll(0.02) until a:member("worker1").state ~= "alive" or os.time() > deadline
  same(a:member("worker1").state, "left")
  fails(40, "has left", a.call, a, "worker1", "echo", 1)
  fails(40, "", a.call, a, "worker2", "shut")
  same(distag.join(other), 5)
  same(raised[2].code, 40)
  a:close()
end)

test("required again, also after a library that is not there", function()
  package.loaded.distag = nil
  same(require("distag"), distag)
  local program = [[for _ = 1, 2 do print(select(2, pcall(require, "distag"))) package.loaded.distag = nil end]]
  local run = io.popen("DISTAG_LIBRARY=./not_there.so /usr/bin/luajit -e '" .. program .. "' 2>&1")
  local printed = run:read("*a")
  run:close()
  same(select(2, printed:gsub("not_there.so: cannot open", "")), 2)
end)

-- Each is lent by what is released before it is used.
test("what was lent outlives its owner", function()
  local kept
  group({ echo = echo, keep = function(x) kept = x end }, function(a)
    local future = a:call_async("b", "echo", { distag.tensor({ 1, 2 }) })
    local answer, x = future:await()[1], distag.tensor({ 1, 2 }):with_grad()
    future:close()
    a:call("b", "keep", distag.tensor({ 3, 4 }))
    local context = a:context()
    context:backward((x * x):sum())
    local gradient = context:gradient(x)
    context:close()
    for _ = 1, 3 do
      require("jit").flush()
      collectgarbage()
    end
    same(answer:numbers(), { 1, 2 })
    same(kept:numbers(), { 3, 4 })
    same(gradient:numbers(), { 2, 4 })
  end)
end)

test("what a function asks of its call", function()
  local functions = {}
  function functions.ask()
    local call = distag.current_call()
    return { call.name, call.caller, call.worker:name(), call:time_left() <= 7, call.traceparent == nil }
  end
  functions.forever = function() return distag.current_call():time_left() == nil end
  functions.keep = function() functions.kept = distag.current_call() end
  group({ ask = functions.ask, forever = functions.forever, keep = functions.keep }, function(a)
    same(a:call_with({ timeout = 7 }, "b", "ask"), { "ask", "a", "b", true, true })
    same(a:call_with({ timeout = distag.FOREVER }, "b", "forever"), true)
    a:call("b", "keep")
    same({ functions.kept:time_left(), functions.kept:is_cancelled() }, { 0, true })
    local context = a:context()
    same(context:call_with({ timeout = 7 }, "b", "ask"), { "ask", "a", "b", true, true })
  end)
end)

test("what a function asks of others ends with the call that it answers", function()
  local function left() return distag.current_call():time_left() end
  local functions = { left = left }
  local function own() return distag.current_call().worker end
  functions.calls = function() return own():call("a", "left") end
  functions.shorter = function() return own():call_with({ timeout = 3 }, "a", "left") end
  functions.longer = function() return own():call_with({ timeout = 50 }, "a", "left") end
  functions.refers = function() return own():remote("a", "left"):fetch() end
  functions.spawns = function() return distag.join(distag.spawn(functions.calls)) end
  functions.records = function() return distag.current_call().context:call("a", "left") end
  group(functions, function(a)
    for name, most in pairs({ calls = 7, shorter = 3, longer = 7, refers = 7, spawns = 7 }) do
      local found = a:call_with({ timeout = 7 }, "b", name)
      assert(found > 0 and found <= most, name .. ": " .. found)
      assert(name == "shorter" or a:call_with({ timeout = 60 }, "b", name) > 7, name)
    end
    local found = a:context():call_with({ timeout = 7 }, "b", "records")
    assert(found > 0 and found <= 7, found)
    assert(left == functions.left and distag.current_call() == nil)
  end)
end)

-- Each option by what it does: two that are swapped, or one that is dropped, change one of these.
test("times and limits of bytes in the options of a worker", function()
  local offers = { echo = function(x) return #tostring(x) end,
                   left = function() return distag.current_call():time_left() end }
  local function with(options, run)
    options.rank, options.world_size, options.rendezvous, options.functions = 0, 1, "inproc://options", offers
    local worker = distag.worker(options)
    worker:start(20)
    local is_ok, problem = pcall(run, worker)
    worker:shutdown(20)
    worker:close()
    assert(is_ok, problem)
  end
  with({ call_timeout = 5, lease = 30 }, function(worker)
    local left = worker:call("worker0", "left")
    assert(left > 0 and left <= 5, left)
    assert(worker:call_with({ timeout = 50 }, "worker0", "left") > 5)
  end)
  with({ call_timeout = distag.FOREVER }, function(worker) same(worker:call("worker0", "left"), nil) end)
  fails(10, "lease_ns", distag.worker, { lease = distag.FOREVER, call_timeout = 5 })
  local large = distag.bytes(("x"):rep(150000))
  with({ max_message_bytes = 100000 }, function(worker)
    fails(10, "the limit of 100000", worker.call, worker, "worker0", "echo", large)
  end)
  with({ max_in_flight_bytes = 100000 }, function(worker)
    same(worker:call("worker0", "echo", large), 150000) -- one alone may be larger
    local calls, refused = {}, 0
    for index = 1, 20 do calls[index] = worker:call_async("worker0", "echo", large) end
    for _, each in ipairs(calls) do
      local is_ok, problem = pcall(each.await, each)
      if not is_ok then
        same(problem.name, "OVERLOADED")
        refused = refused + 1
      end
    end
    assert(refused > 0, "none of the calls was too much")
  end)
end)

test("members, and a function that is withdrawn", function()
  group({ echo = echo }, function(a, b)
    same({ a:name(), b:name() }, { "a", "b" })
    same(a:ranks(), { 0, 1 })
    same(a:ranks("b"), { 1 })
    same(a:ranks("c"), {})
    same({ a:member(1).name, a:member("b").rank, a:member("b").state }, { "b", 1, "alive" })
    fails(12, "", a.member, a, "c")
    fails(10, "the rank of a member", a.member, a, -1)
    same(b:unregister("echo"), true)
    fails(12, "echo", a.call, a, "b", "echo", 1)
    fails(12, "echo", b.unregister, b, "echo")
    b:register("echo", function() return 5 end)
    same(a:call("b", "echo", 1), 5)
  end)
end)

test("the state of a member that has left", function()
  local function make(name)
    return distag.worker({ name = name, rank = -1, world_size = -1, rendezvous = "inproc://leaves" })
  end
  local a, b = make("a"), make("b")
  a:start(20)
  b:start(20)
  same({ a:member("b").state, #a:ranks() }, { "alive", 2 })
  b:shutdown(20)
  for _ = 1, 1000 do
    if a:member("b").state ~= "alive" then break end
    distag.poll(0.02)
  end
  same({ a:member("b").state, #a:ranks() }, { "left", 1 })
  a:shutdown(20)
  a:close()
  b:close()
end)

-- Two steps, the state saved between them, are those of an optimizer that gets the state and makes the second.
test("settings, clipping and states of optimizers, here and at owners", function()
  local function check_optimizer(at, context_of)
    local x, y = distag.tensor({ 3, 4 }):with_grad(), distag.tensor({ 3, 4 }):with_grad()
    local function pass(parameter)
      local context = context_of()
      context:backward((parameter * parameter):sum())
      return context
    end
    local adam, other = distag.optimizer(at, "adam", { x }), distag.optimizer(at, "adam", { y }, { lr = 1 })
    adam:set("lr", 1)
    local context = pass(x)
    same(adam:clip(context, 5), 10)
    local clipped = context:gradient(x):numbers()
    assert(math.abs(clipped[1] - 3) < 1e-5 and math.abs(clipped[2] - 4) < 1e-5, clipped[1])
    adam:step(pass(x))
    local state = adam:save()
    y:assign(x)
    other:load(state)
    adam:step(pass(x))
    other:step(pass(y))
    same(y:numbers(), x:numbers())
    fails(12, "rate", adam.set, adam, "rate", 1)
    fails(10, "lr: a number is wanted", adam.set, adam, "lr", "much")
    fails(10, "clip: a number is wanted", adam.clip, adam, context, nil)
    fails(10, "", adam.load, adam, { 1 })
    fails(10, "load", adam.load, adam, echo)
  end
  check_optimizer(nil, distag.context)
  group({ echo = echo }, function(a) check_optimizer(a, function() return a:context() end) end)
end)

test("a pass through a fetch and a call that leaves its answer there", function()
  group({ square = square }, function(a)
    local x = distag.tensor({ 1, 2 }):with_grad()
    local context = a:context()
    local there = context:remote("b", "square", x)
    context:backward(there:fetch(context):sum())
    same(context:gradient(x):numbers(), { 2, 4 })
    fails(10, "fetch: a context is wanted", there.fetch, there, a)
  end)
end)

test("a scope does not close what others make while it waits", function()
  local kept
  local functions = { keep = function(x)
    kept = x * 2
    return 1
  end }
  group(functions, function(a)
    local outer
    distag.scope(function()
      outer = distag.tensor(1)
      a:call("b", "keep", outer)
      local routine = distag.spawn(function()
        return distag.scope(function(keep)
          local made = distag.tensor(5)
          a:call("b", "keep", made)
          return keep(made)
        end)
      end)
      same(distag.join(routine):item(), 5)
    end)
    same(kept:item(), 10)
    fails(10, "", outer.item, outer)
  end)
end)

test("the scope and the call of a coroutine are those of before it, after others have run in it", function()
  local seen = {}
  local functions = { echo = echo, nested = function(x)
    local own = distag.current_call()
    distag.join(distag.spawn(function() seen[#seen + 1] = distag.current_call() == own end))
    seen[#seen + 1] = distag.current_call() == own
    own.worker:call("a", "echo", x)
    seen[#seen + 1] = distag.current_call() == own
    return x
  end }
  group(functions, function(a)
    local first, ended, waited
    distag.scope(function()
      distag.join(distag.spawn(function() first = distag.tensor(1) end)) -- over at once
      ended = distag.tensor(2)
      distag.join(distag.spawn(function() a:call("b", "nested", 3) end)) -- goes on from the events
      waited = distag.tensor(4)
    end)
    same(first:item(), 1)
    fails(10, "the tensor is closed", ended.shape, ended)
    fails(10, "the tensor is closed", waited.shape, waited)
    same(seen, { true, true, true })
    same(distag.current_call(), nil)
  end)
  fails(1000, "in a scope", distag.scope, function() error(distag.error("in a scope")) end)
  local outside = distag.tensor(5)
  distag.scope(function() end)
  same(outside:item(), 5)
end)

test("the target that a loss ignores is left out, or given", function()
  local logs = distag.tensor({ { 1, 2 }, { 3, 4 } }, "float64"):log_softmax()
  local targets, expected = distag.tensor({ -100, 1 }, "int64"), math.log(1 + math.exp(-1))
  local losses = { logs:cross_entropy(targets), logs:nll_loss(targets),
                   logs:cross_entropy(targets, nil, nil, -100), logs:nll_loss(targets, nil, "mean", -100LL) }
  for _, each in ipairs(losses) do assert(math.abs(each:item() - expected) < 1e-12, each:item()) end
  fails(10, "target -100", logs.nll_loss, logs, targets, nil, "mean", 7)
  for _, op in ipairs(require("distag.ops")) do
    for _, attribute in ipairs(op.attributes) do
      assert(attribute.name ~= "ignore_index" or attribute.default == nil, op.name) -- else it is always given
    end
  end
end)

test("backward through two workers, through A, B and A again, with an optimizer", function()
  local functions = { square = square }
  functions.twice_square = function(x) return distag.current_call().context:call("a", "square", x) * 2 end
  group(functions, function(a)
    local x = distag.tensor({ 1, 2, 3 }):with_grad()
    local context = a:context()
    local loss = context:call("b", "square", x):sum()
    same(loss:item(), 14)
    context:backward(loss)
    same(context:gradient(x):numbers(), { 2, 4, 6 })
    distag.optimizer(a, "sgd", { x }, { lr = 0.5 }):step(context)
    same(x:numbers(), { 0, 0, 0 })
    x:assign(distag.tensor({ 1, 2, 3 }))
    local other = a:context()
    other:backward(other:call("b", "twice_square", x):sum())
    same(other:gradient(x):numbers(), { 4, 8, 12 })
  end)
end)

test("gradients of gradients, three times, with seeds", function()
  local x = distag.tensor({ 2, -1 }, "float64"):with_grad()
  local values = (x * x * x):sum()
  for _, expected in ipairs({ { 12, 3 }, { 12, -6 }, { 6, 6 } }) do
    local within = distag.context()
    within:backward_with({ create_graph = true }, values)
    local gradient = within:gradient(x)
    same(gradient:numbers(), expected)
    values = gradient:sum()
  end
  local seed, first, second = distag.tensor({ 5, 7 }, "float64"):with_grad(), distag.context(), distag.context()
  first:backward_with({ seeds = { seed }, create_graph = true }, x * x)
  second:backward(first:gradient(x):sum())
  same(second:gradient(seed):numbers(), { 4, -2 })
  -- Without it a gradient has no history; with it alone the graph serves again.
  local plain, product = distag.context(), x * x
  plain:backward_with({ seeds = { seed }, retain_graph = true }, product)
  fails(10, "", plain.backward, plain, plain:gradient(x):sum())
  plain:backward_with({ seeds = { seed } }, product)
  same(plain:gradient(x):numbers(), { 40, -28 })
  fails(10, "creates_graph", plain.backward_with, plain, { creates_graph = true }, x:sum())
  fails(10, "a seed: a tensor is wanted", plain.backward_with, plain, { seeds = { 1 } }, x:sum())
  fails(10, "a table of options is wanted, and a tensor is there", plain.backward_with, plain, x:sum())
  fails(10, "seed x of 1 roots", plain.backward_with, plain, { seeds = { x = seed } }, x:sum())
  fails(10, "seed 2 of 1 roots", plain.backward_with, plain, { seeds = { seed, seed } }, x:sum())
  fails(10, "a root: a tensor is wanted", plain.backward, plain, nil)
  fails(10, "", plain.backward_with, plain, { seeds = {} }, x * x)
end)

test("a gradient penalty: the length of the critic's gradient by its input goes to 1", function()
  local critic = distag.tensor({ { 0.3, -0.2 }, { 0.1, 0.4 }, { -0.5, 0.2 } }, "float64"):with_grad()
  local last = distag.tensor({ 0.7, -0.3, 0.2 }, "float64"):with_grad()
  local points = distag.tensor({ { 0.5, -1.0 }, { 1.5, 0.2 } }, "float64"):with_grad()
  local sgd, losses = distag.optimizer(nil, "sgd", { critic, last }, { lr = 0.2 }), {}
  for step = 1, 60 do
    local first, second = distag.context(), distag.context()
    first:backward_with({ create_graph = true }, distag.linear(points, critic, nil):tanh():matmul(last):sum())
    local slopes = first:gradient(points)
    local off = (slopes * slopes):sum({ 1 }):sqrt() - 1
    local penalty = (off * off):mean()
    second:backward(penalty)
    sgd:step(second)
    losses[step] = penalty:item()
  end
  assert(losses[60] < 0.1 * losses[1], losses[1] .. " " .. losses[60])
end)

test("gradients of gradients go through other workers", function()
  group({ square = square }, function(a)
    local x = distag.tensor({ 2 }, "float64"):with_grad()
    local context = a:context()
    context:backward_with({ create_graph = true, timeout = 20 }, (x * x):sum())
    same(context:gradient(x):numbers(), { 4 })
    local far = a:context()
    far:backward_with({ create_graph = true }, far:call("b", "square", x):sum())
    far:backward(far:gradient(x):sum())
    same(far:gradient(x):numbers(), { 4 + 2 })
    local made = a:remote("b", "square", x)
    fails(10, "a remote root: an rref is wanted", context.backward_with, context, { remote_roots = { x } })
    made:close()
  end)
end)

-- The environment of this process without launchers, and with these variables.
ffi.cdef("int setenv(const char *name, const char *value, int overwrite); int unsetenv(const char *name);")
local function launch(variables)
  for _, prefix in ipairs({ "", "DISTAG_" }) do
    for _, name in ipairs({ "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                            "RESTART_COUNT" }) do
      ffi.C.unsetenv(prefix .. name)
    end
  end
  for _, name in ipairs({ "TORCHELASTIC_RESTART_COUNT", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK",
                          "SLURM_STEP_ID", "SLURM_PROCID", "JOB_COMPLETION_INDEX" }) do
    ffi.C.unsetenv(name)
  end
  for name, content in pairs(variables) do ffi.C.setenv(name, content, 1) end
end

test("the place that a launcher tells", function()
  launch({})
  fails(10, "WORLD_SIZE, RANK;", distag.environment)
  launch({ RANK = "3", WORLD_SIZE = "4", LOCAL_RANK = "1", LOCAL_WORLD_SIZE = "2", GROUP_RANK = "1",
           TORCHELASTIC_RESTART_COUNT = "2" })
  local place = distag.environment()
  same({ place.rank, place.world_size, place.local_rank, place.local_size }, { 3, 4, 1, 2 })
  same({ place.node, place.restart, place.launcher }, { 1, 2, "torchrun" })
  same(place.node_count, nil)
  launch({ DISTAG_RANK = "-1", DISTAG_WORLD_SIZE = "-1" })
  place = distag.environment()
  same({ place.rank, place.world_size, place.launcher }, { -1, -1, "own" })
  same(place.local_rank, nil)
  launch({ RANK = "1x", WORLD_SIZE = "2" })
  fails(10, "RANK=\"1x\"", distag.environment)
  launch({})
end)

test("counters, reports, and a trace with the spans of the host", function()
  local folder = os.tmpname() -- a file, which the trace shall not be
  fails(11, "", function()
    group({ echo = echo }, function(a) a:start_trace({ folder = folder }) end)
  end)
  os.remove(folder)
  assert(os.execute("mkdir " .. folder) == 0)
  group({ echo = echo }, function(a, b)
    local function step(x, y)
      a:call("b", "echo", x)
      return x, nil, y
    end
    same(select("#", a:trace("before", step, 1, 2)), 3)
    a:start_trace({ folder = folder, max_bytes = 1048576 })
    local first, second, third = a:trace("step \206\177", step, 1, 2)
    same({ first, third }, { 1, 2 })
    same(second, nil)
    fails(1000, "in a span", a.trace, a, "fails", function() error(distag.error("in a span")) end)
    distag.join(distag.spawn(function() a:trace("waits", step, 1) end))
    fails(11, "stop it first", a.start_trace, a, { folder = folder })
    fails(10, "max_bytes", b.start_trace, b, { folder = folder, max_bytes = 1 })
    fails(10, "NUL", b.start_trace, b, { folder = "a\0b" })
    fails(10, "a table of options is wanted", b.start_trace, b, folder)
    fails(10, "there is no option dir", b.start_trace, b, { dir = folder })
    fails(10, "127", a.trace, a, ("x"):rep(128), step)
    fails(10, "NUL", a.trace, a, "a\0b", step)
    a:stop_trace()
    a:stop_trace()
    local file = assert(io.open(folder .. "/a.trace.json"))
    local begun = {}
    for name in file:read("*a"):gmatch('"ph":"b"[^\n]-"name":"([^"]*)"') do
      if name ~= "echo" then begun[#begun + 1] = name end -- the calls have one each too
    end
    file:close()
    same(begun, { "step α", "fails", "waits" })
    assert(a:stats().calls_made >= 3 and a:stats().struct_size == nil)
    local context = a:context()
    context:call("b", "echo", 1)
    same(context:info().known_count, 1)
    assert(context:report():find("\"passes\"", 1, true) and a:report():find("\"members\"", 1, true))
    assert(("\n" .. a:metrics()):find("\ndistag_calls_made_total{worker=\"a\"} %d"))
  end)
  os.remove(folder .. "/a.trace.json")
  os.remove(folder)
end)

test("the engine of sockets", function()
  local folder = os.tmpname()
  os.remove(folder)
  for _, engine in ipairs({ "zmq", "zmtp" }) do
    assert(os.execute("mkdir " .. folder) == 0)
    local worker = distag.worker({ world_size = 1, rendezvous = "file://" .. folder, socket_engine = engine })
    worker:start(20)
    assert(worker:report():find('"engine": "' .. engine .. '"', 1, true))
    worker:shutdown(20)
    worker:close()
    assert(os.remove(folder))
  end
  fails(10, 'and not "raw"', distag.worker, { world_size = 1, rendezvous = "inproc://engine", socket_engine = "raw" })
end)

test("a worker that is closed in its span, and one that is not started", function()
  local worker = distag.worker({ name = "w", world_size = 1, rendezvous = "inproc://traced" })
  fails(11, "not started", worker.start_trace, worker, { folder = "/tmp" })
  same(worker:trace("closes", function() worker:close() return 5 end), 5)
  fails(10, "", worker.trace, worker, "later", echo)
  fails(10, "", worker.stop_trace, worker)
  fails(10, "", worker.metrics, worker)
  fails(10, "", worker.stats, worker)
end)

test("drawings", function()
  local grid = "{devices=[2,2]0,1,2,3}"
  local drawn = distag.visualize_sharding(grid, nil, { label = "TPU" })
  assert(drawn:find("│ TPU 0 │ TPU 1 │\n", 1, true), drawn)
  local svg = distag.visualize_sharding(grid, { 4, 6 }, { format = "svg", label = "<w>" })
  assert(svg:sub(1, 5) == "<svg " and svg:sub(-7) == "</svg>\n")
  assert(svg:find("0:2, 0:3: &lt;w&gt; 0\n", 1, true))
  same(distag.visualize_sharding("{devices=[2]0,1}", { 4 }, { format = "json" }),
       '{"boxes":[{"offset":[0],"extent":[2],"members":[0]},{"offset":[2],"extent":[2],"members":[1]}]}')
  assert(distag.visualize_sharding(grid):find("CPU 3", 1, true))
  fails(10, "width", distag.visualize_sharding, grid, nil, { width = 5 })
  fails(10, "format: text, json, svg or html, not png", distag.visualize_sharding, grid, nil, { format = "png" })
  fails(10, "there is no option colour", distag.visualize_sharding, grid, nil, { colour = true })
  fails(10, "", distag.visualize_sharding, "('data',)")
  fails(10, "", distag.visualize_sharding, grid, nil, { dims = { 7 } })
  fails(10, "a string is wanted", distag.visualize_sharding)
end)

test("ops, with attributes and without, and tensors as operands", function()
  local x = distag.tensor({ { 1, 2, 3 }, { 4, 5, 6 } })
  same(x:shape(), { 2, 3 })
  same(x:transpose(0, 1):numbers(), { 1, 4, 2, 5, 3, 6 })
  same(x:slice(1, 0, 3, 2):numbers(), { 1, 3, 4, 6 })
  same(x:sum({ 0 }):numbers(), { 5, 7, 9 })
  same((2 * x - 1 + x / 2):sum():item(), 21 * 2.5 - 6)
  same((-x):relu():sum():item(), 0)
  same({ (x ^ 2):numbers(), (2 ^ x):numbers(), (x ^ x):sum():item() },
       { { 1, 4, 9, 16, 25, 36 }, { 2, 4, 8, 16, 32, 64 }, 50069 })
  same(distag.zeros({ 2, 0, 3 }):shape(), { 2, 0, 3 })
  same(distag.full(2.5, { 2 }, "float64"):dtype(), "float64")
  same(x:argmax(1):numbers(), { 2, 2 })
  same(distag.concat({ x, x }, 0):shape(), { 4, 3 })
  local parts = x:split({ 1, 2 }, 1)
  same({ #parts, parts[1]:numbers(), parts[2]:numbers() }, { 2, { 1, 4 }, { 2, 3, 5, 6 } })
  same({ #x:split(2), x:split(2)[1]:numbers() }, { 1, { 1, 2, 3, 4, 5, 6 } })
  same(#x:split({ 1LL, 1LL }), 2)
  same(x:cast("int64"):dtype(), "int64")
  same(distag.linear(x, x, nil):shape(), { 2, 2 })
  assert(x == x and x ~= x:clone() and tostring(x) == "tensor float32 [2, 3]")
  local message = tostring(fails(10, "matmul", x.matmul, x, distag.zeros({ 4, 5 })))
  assert(message:find("[2, 3]", 1, true) and message:find("[4, 5]", 1, true), message)
  fails(20, "Lua cannot be called back", x.add_hook, x, echo)
  fails(20, "Lua cannot be called back", distag.apply_custom)
  local w = distag.tensor({ 1, 2 }, "float64")
  same({ w:requires_grad(), w:with_grad() == w, w:requires_grad() }, { false, true, true })
  same({ (w * 3):requires_grad(), w:detach():requires_grad() }, { true, false })
  local context = distag.context()
  context:backward((w * 3):sum())
  distag.optimizer(nil, "sgd", { w }, { lr = 1 }):step(context)
  same(w:numbers(), { -2, -1 })
end)

test("a scope closes what was made in it, and the collector runs for what was not", function()
  local inside
  fails(10, "keep: a tensor is wanted, and a number is there", distag.scope, function(keep)
    inside = distag.ones({ 1 })
    keep(3)
  end)
  fails(10, "the tensor is closed", inside.item, inside)
  units.nothing_is_left()
  local kept
  distag.scope(function(keep)
    local x = distag.tensor({ 1, 2 })
    kept = keep(x * x)
  end)
  same(distag.handle_count(), 1)
  same({ select("#", distag.scope(echo)), distag.scope(function() return 1, false, 3 end) }, { 1, 1, false, 3 })
  same(select("#", distag.scope(function() return nil, nil end)), 2)
  same(kept:numbers(), { 1, 4 })
  kept:close()
  for index = 1, 2000 do same(distag.full(index, { 262144 }):count(), 262144) end
  for line in io.lines("/proc/self/status") do
    local kilobytes = line:match("^VmHWM:%s+(%d+)")
    assert(not kilobytes or tonumber(kilobytes) < 307200, line)
  end
end)

units.run()
for line in io.lines((arg[0]:gsub("tests/bindings/lua/unit%.lua$", "bindings/lua/distag.lua"))) do
  assert(not line:find('ffi%.cast%("distag_[%w_]+"'), "a function of Lua becomes a pointer of C: " .. line)
end
