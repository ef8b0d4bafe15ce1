-- The binding for Lua: two workers in this process, and what a user may do to them. usage: luajit unit.lua
io.stdout:setvbuf("no")
local distag = require("distag")
local ffi = require("ffi")

local tests, names, groups = {}, {}, 0
local function test(name, run) names[#names + 1], tests[name] = name, run end
local function same(found, expected)
  if type(expected) == "table" then
    assert(type(found) == "table" and #found == #expected, "another table")
    for index = 1, #expected do same(found[index], expected[index]) end
    return
  end
  if found ~= expected then error(tostring(found) .. " is not " .. tostring(expected), 2) end
end
local function fails(code, part, run, ...)
  local is_ok, problem = pcall(run, ...)
  assert(not is_ok, "nothing failed")
  assert(distag.is_error(problem), tostring(problem))
  assert(problem.code == code and tostring(problem):find(part, 1, true), problem.code .. ": " .. tostring(problem))
  return problem
end
-- Workers a and b, which offer the same functions; shut down side by side when the test is done.
local function group(functions, run)
  groups = groups + 1
  local a, b
  local function make(name, rank)
    return distag.worker({ name = name, rank = rank, world_size = 2, rendezvous = "inproc://lua" .. groups,
                           functions = functions })
  end
  a, b = make("a", 0), make("b", 1)
  distag.wait_all({ a:start_async(20), b:start_async(20) })
  local is_ok, problem = pcall(run, a, b)
  distag.wait_all({ a:shutdown_async(20), b:shutdown_async(20) })
  a:close()
  b:close()
  a:close()
  if not is_ok then error(problem, 0) end
end
local function echo(x) return x end
local function square(x) return x * x end

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
    local answers = {}
    for index = 1, 8 do
      distag.spawn(function()
        for each = 1, 10 do
          local answer = a:call("b", "ask_back", index * each)
          same(answer, 2 * index * each + 1)
          answers[#answers + 1] = answer
        end
      end)
    end
    while #answers < 80 do distag.poll(0.02) end
  end)
end)

test("functions that fail with anything", function()
  local functions = { echo = echo, text = function() error("no such user") end, number = function() error(7, 0) end,
                      nothing = function() error() end, table = function() error({}) end,
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
    same(fails(1042, "not today", a.call, a, "b", "own").origin_rank, 1)
    same(fails(1042, "not today", a.call, a, "a", "pass_on").origin_rank, 1)
    fails(10, "answer: a function is no value", a.call, a, "b", "answer")
    same(fails(12, "no_such_function", a.call, a, "b", "no_such_function").may_have_run, false)
    same(a:call("b", "echo", 3), 3)
  end)
end)

test("a deadline, a cancellation, a second offer of a name", function()
  local held = {}
  local functions = { hang = function()
    held[#held + 1] = coroutine.running()
    coroutine.yield() -- until the test goes on with it
  end }
  group(functions, function(a)
    same(fails(50, "", a.call_with, a, { timeout = 0.05 }, "b", "hang").class, "gave_up")
    local future = a:call_async("b", "hang")
    while #held < 2 do distag.poll(0.02) end
    future:cancel()
    fails(51, "", future.await, future)
    fails(11, "hang", a.register, a, "hang", echo)
    for _, routine in ipairs(held) do assert(coroutine.resume(routine)) end
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
    local long = ("0123456789abcdef"):rep(65536)
    same(a:call("b", "echo", distag.bytes(long)).data, long)
    same(a:call("b", "echo", distag.tensor({ { 1, 2 }, { 3, 4 } })):numbers(), { 1, 2, 3, 4 })
    local made = a:remote("b", "echo", { 1, 2, 3 })
    same(made:owner(), "b")
    same(made:fetch(), { 1, 2, 3 })
  end)
end)

test("what cannot travel is named by its place", function()
  group({ echo = echo }, function(a)
    fails(10, "args[1].layers[0]: a function", a.call, a, "b", "echo", 1, { layers = { print } })
    fails(10, "args[0]: the text has a NUL", a.call, a, "b", "echo", "a\0b")
    fails(10, "the name of a function: the text has a NUL", a.call, a, "b", "ec\0ho")
    fails(10, "does not fit", a.call, a, "b", "echo", 0x8000000000000000ULL)
    fails(10, "args[0]: a key is a number", a.call, a, "b", "echo", distag.map({ 1 }))
    local circle, deep = {}, "leaf"
    circle[1] = circle
    fails(10, "nested deeper than 16", a.call, a, "b", "echo", circle)
    for _ = 1, 16 do deep = { deep } end
    a:call("b", "echo", deep)
    fails(10, "", a.call, a, "b", "echo", { deep })
    local closed = distag.tensor(1)
    closed:close()
    closed:close()
    fails(10, "closed", a.call, a, "b", "echo", closed)
    fails(10, "", closed.item, closed)
    fails(10, "a tensor is wanted", distag.relu, ffi.new("int"))
  end)
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

test("ops, with attributes and without, and tensors as operands", function()
  local x = distag.tensor({ { 1, 2, 3 }, { 4, 5, 6 } })
  same(x:shape(), { 2, 3 })
  same(x:transpose(0, 1):numbers(), { 1, 4, 2, 5, 3, 6 })
  same(x:slice(1, 0, 3, 2):numbers(), { 1, 3, 4, 6 })
  same(x:sum({ 0 }):numbers(), { 5, 7, 9 })
  same((2 * x - 1 + x / 2):sum():item(), 21 * 2.5 - 6)
  same((-x):relu():sum():item(), 0)
  same(distag.zeros({ 2, 0, 3 }):shape(), { 2, 0, 3 })
  same(distag.full(2.5, { 2 }, "float64"):dtype(), "float64")
  same(x:argmax(1):numbers(), { 2, 2 })
  same(distag.concat({ x, x }, 0):shape(), { 4, 3 })
  same(#x:split({ 1, 2 }, 1), 2)
  same(x:cast("int64"):dtype(), "int64")
  same(distag.linear(x, x, nil):shape(), { 2, 2 })
  assert(x == x and x ~= x:clone() and tostring(x) == "tensor float32 [2, 3]")
  local message = tostring(fails(10, "matmul", x.matmul, x, distag.zeros({ 4, 5 })))
  assert(message:find("[2, 3]", 1, true) and message:find("[4, 5]", 1, true), message)
  fails(20, "Lua cannot be called back", x.add_hook, x, echo)
  fails(20, "Lua cannot be called back", distag.apply_custom)
  local w = distag.tensor({ 1, 2 }, "float64"):with_grad()
  local context = distag.context()
  context:backward((w * 3):sum())
  distag.optimizer(nil, "sgd", { w }, { lr = 1 }):step(context)
  same(w:numbers(), { -2, -1 })
end)

test("a scope closes what was made in it, and the collector runs for what was not", function()
  local before, kept = distag.handle_count(), nil
  distag.scope(function(keep)
    local x = distag.tensor({ 1, 2 })
    kept = keep(x * x)
  end)
  same(distag.handle_count(), before + 1)
  same(kept:numbers(), { 1, 4 })
  kept:close()
  for index = 1, 2000 do same(distag.full(index, { 262144 }):count(), 262144) end
  for line in io.lines("/proc/self/status") do
    local kilobytes = line:match("^VmHWM:%s+(%d+)")
    assert(not kilobytes or tonumber(kilobytes) < 307200, line)
  end
end)

for number, name in ipairs(names) do
  local is_ok, problem = xpcall(tests[name], function(each)
    return distag.is_error(each) and tostring(each) or debug.traceback(tostring(each))
  end)
  print((is_ok and "ok " or "not ok ") .. number .. " - " .. name)
  assert(is_ok, problem)
end
require("jit").flush() -- a trace holds what it was made with
for _ = 1, 5 do collectgarbage() end -- what is held by what is collected goes in the next one
assert(distag.handle_count() == 0, "handles are left: " .. distag.handle_report())
for line in io.lines((arg[0]:gsub("tests/bindings/lua/unit.lua$", "bindings/lua/distag.lua"))) do
  assert(not line:find("ffi.cast%(\"distag_[%w_]+\""), "a function of Lua becomes a pointer of C: " .. line)
end
