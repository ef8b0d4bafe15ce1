-- Runs the cases of bindings/conformance/cases.json through the binding for Lua, which is not called back: those with
-- ops, hooks and objects of the user are refused. usage: luajit conformance.lua REPOSITORY [WORD], or luajit
-- conformance.lua leave CALLS, a program that ends with calls open
io.stdout:setvbuf("no")
package.path = arg[0]:gsub("conformance%.lua$", "?.lua;") .. package.path
local distag = require("distag")
local ffi = require("ffi")
local ops = require("distag.ops")
local support = require("support")
local same, flat, near, fails, group = support.same, support.flat, support.near, support.fails, support.group
local repository, cases = arg[1], {}
local CURE = "Lua cannot be called back: use built-in ops"

local function echo(x) return x end
local function double(x) return 2 * x end
local function square(x) return x * x end
-- A tensor of reference numbers: dtype, shape, data; nil for null.
local function described(given, requires_grad)
  if given == distag.null then return nil end
  local x = distag.tensor(given.data, given.dtype)
  if #given.data == 0 then x = distag.zeros(given.shape, given.dtype) end
  x = x:reshape(given.shape)
  if requires_grad and given.dtype == "float64" then return x:clone():with_grad() end
  return x
end
local function parameter(numbers) return distag.tensor(numbers):with_grad() end
local function collect()
  require("jit").flush() -- a trace holds what it was made with
  for _ = 1, 5 do collectgarbage() end -- what is held by what is collected goes in the next one
end

-- ---- tensors ----

cases["tensor: every dtype, made and read"] = function(case)
  for _, each in ipairs(case.tensors) do
    local x = described(each)
    same(x:dtype(), each.dtype)
    same(x:shape(), each.shape)
    same(x:numbers(), flat(each.data))
  end
end
cases["tensor: without elements, without dims, with strides"] = function(case)
  local empty, scalar = distag.zeros(case.empty_shape), distag.tensor(case.scalar)
  same(empty:shape(), case.empty_shape)
  same(empty:count(), 0)
  same(empty:numbers(), {})
  same(select(2, empty:view()), 0)
  same(scalar:item(), case.scalar)
  same(scalar:shape(), {})
  local matrix = distag.tensor(case.matrix)
  same(matrix:transpose(0, 1):numbers(), flat(case.transposed))
  local view, count = matrix:transpose(0, 1):view()
  for index, each in ipairs(flat(case.transposed)) do same(view[index - 1], each) end
  same(count, 6)
  same(matrix:slice(1, 0, 3, 2):numbers(), flat(case.every_second_column))
end
-- Calls an op by its name: inputs, then attributes in the order of the signature.
local function call_op(op, inputs, attributes)
  local arguments, count = {}, #op.inputs
  if op.inputs[1] and op.inputs[1].kind == "many" then
    arguments[1], count = inputs, 1
  else
    for index = 1, count do arguments[index] = inputs[index] end
  end
  for index, each in ipairs(op.attributes) do
    local content = attributes[each.name]
    if content ~= distag.null then arguments[count + index] = content end
  end
  local made = distag.ops[op.name](unpack(arguments, 1, count + #op.attributes))
  return op.outputs == 1 and { made } or made
end
local function check_op(case, op, line)
  local inputs, needs, wanted = {}, false, line.grad_inputs ~= distag.null and line.grad_inputs or {}
  for index, each in ipairs(line.inputs) do
    local has_gradient = wanted[index] ~= nil and wanted[index] ~= distag.null
    inputs[index] = described(each, has_gradient)
    needs = needs or (has_gradient and each.dtype == "float64")
  end
  local outputs, seeds = call_op(op, inputs, line.attributes), {}
  same(#outputs, #line.outputs)
  for index, each in ipairs(line.outputs) do
    same(outputs[index]:shape(), each.shape)
    near(outputs[index]:numbers(), flat(each.data), case.absolute, case.relative)
  end
  if not needs then return end
  for index, each in ipairs(line.grad_outputs) do seeds[index] = described(each) end
  local context = distag.context()
  context:backward_with({ seeds = seeds }, unpack(outputs, 1, #outputs))
  for index = 1, #line.inputs do
    local expected = wanted[index]
    if expected ~= nil and expected ~= distag.null and expected.dtype == "float64" then
      near(context:gradient(inputs[index]):numbers(), flat(expected.data), case.absolute, case.relative)
    end
  end
end
cases["tensor: every op once with reference numbers"] = function(case)
  local known, seen = {}, {}
  for _, op in ipairs(ops) do known[op.name] = op end
  for _, name in ipairs(case.not_in_the_library) do seen[name] = true end
  for text in support.read(repository .. "/" .. case.file):gmatch("[^\n]+") do
    local line = support.parse(text)
    if known[line.op] then check_op(case, known[line.op], line) else assert(seen[line.op], line.op) end
    seen[line.op] = true
  end
  for _, line in ipairs(case.others) do
    local inputs = {}
    for index, each in ipairs(line.inputs) do inputs[index] = distag.tensor(each) end
    for index, output in ipairs(call_op(known[line.op], inputs, line.attributes)) do
      near(output:numbers(), flat(line.outputs[index]), 0, 0)
    end
    seen[line.op] = true
  end
  for name in pairs(known) do assert(seen[name], name .. " was not tried") end
end
cases["tensor: write and assign in place"] = function(case)
  local x = distag.tensor(case.before)
  local part = x:slice(0, 1)
  x:write(case.written)
  same(part:numbers(), { case.written[2], case.written[3] })
  fails({ status = 10 }, "write: numbers of [1] for a tensor of [3]", x.write, x, { 1 })
  fails({ status = 10 }, "a nil stands where a number is wanted", x.write, x)
  fails({ status = 10 }, "a string stands where", x.write, x, { 1, "two", 3 })
  x:assign(distag.tensor(case.assigned))
  same(x:numbers(), case.expected_assigned)
  x:add_scaled(distag.tensor(case.added), case.scale)
  same(x:numbers(), case.expected_added)
end
cases["tensor: a read copy or snapshot is not changed by a write"] = function(case)
  local x = distag.tensor(case.before, "float64")
  local copied, snapshot, view = x:numbers(), x:snapshot(), x:view()
  x:write(case.written)
  same(copied, case.before)
  same(snapshot:numbers(), case.before)
  same(view[2], case.before[3])
  same(x:numbers(), case.written)
end
cases["tensor: a view of its memory outlives it"] = function(case)
  local x = distag.tensor(case.data, "float64")
  local view, count = x:view()
  x:write({ 0, 0, 0 })
  x:close()
  collect()
  same(count, #case.data)
  for index, each in ipairs(case.data) do same(view[index - 1], each) end
end
cases["tensor: a wrong shape is an error that names it"] = function(case)
  local left = distag.zeros(case.left)
  fails(case, "", left.matmul, left, distag.zeros(case.right))
end

-- ---- passes in this process ----

cases["local: backward through two layers"] = function(case)
  local named, count = {}, 0
  for _, name in ipairs({ "x", "w1", "b1", "w2" }) do
    named[name] = distag.tensor(case[name], case.dtype)
    if case.gradients[name] then named[name]:with_grad() end
  end
  local hidden = distag.linear(named.x, named.w1, named.b1):tanh()
  local loss = distag.cross_entropy(distag.linear(hidden, named.w2, nil), distag.tensor(case.targets, "int64"), nil)
  near({ loss:item() }, { case.loss }, case.tolerance, 0)
  local context = distag.context()
  context:backward(loss)
  for name, numbers in pairs(case.gradients) do
    near(context:gradient(named[name]):numbers(), flat(numbers), case.tolerance, 0)
    count = count + 1
  end
  assert(count > 0)
end
cases["local: a custom op"] = function()
  fails({ status = 20 }, CURE, distag.apply_custom, "Scale", {}, { parameter({ 1 }) }, 1)
  return "refused"
end
cases["local: a hook sees the gradient and gives another"] = function(case)
  local x = parameter(case.x)
  fails({ status = 20 }, CURE, x.add_hook, x, echo)
  return "refused"
end
cases["local: an optimizer of each kind, one step"] = function(case)
  local seen, count = {}, 0
  for _, line in ipairs(support.parse(support.read(repository .. "/" .. case.file))) do
    local x, settings, step = described(line.initial, true), {}, line.steps[1]
    for name, content in pairs(line.settings) do
      if name == "betas" then -- a pair in Python
        settings.beta1, settings.beta2 = content[1], content[2]
      else
        settings[name] = content == true and 1 or content or 0
      end
    end
    local optimizer, context = distag.optimizer(nil, line.optimizer, { x }, settings), distag.context()
    context:backward_with({ seeds = { described(step.gradient) } }, x * 1)
    optimizer:step(context)
    near(x:numbers(), flat(step.parameter.data), case.absolute, case.relative)
    if not seen[line.optimizer] then count = count + 1 end
    seen[line.optimizer] = true
  end
  same(count, 8)
end

-- ---- workers ----

cases["workers: two in one process call each other"] = function(case)
  group({ double = double }, function(a, b)
    same(a:call("b", "double", case.argument), case.answer)
    same(b:call("a", "double", case.argument), case.answer)
  end)
end
cases["workers: an async call"] = function(case)
  group({ double = double }, function(a)
    local futures = {}
    for index, each in ipairs(case.arguments) do futures[index] = a:call_async("b", "double", each) end
    same(distag.wait_all(futures), case.answers)
  end)
end
cases["workers: a value that stays is made and fetched"] = function(case)
  group({ echo = echo }, function(a)
    local made = a:remote("b", "echo", case.made)
    same(made:owner(), "b")
    same(made:fetch(), case.fetched)
  end)
end
cases["workers: a nested call back to the caller"] = function(case)
  local function ask_back(x)
    local call = distag.current_call()
    return call.worker:call(call.caller, "double", x) + 1
  end
  group({ double = double, ask_back = ask_back }, function(a)
    same(a:call("b", "ask_back", case.argument), case.answer)
  end)
end
cases["workers: 100 calls at once from 8 threads or tasks"] = function(case)
  group({ double = double }, function(a)
    local sum, routines = 0, {}
    for caller = 0, case.callers - 1 do
      routines[caller + 1] = distag.spawn(function()
        for each = caller, case.calls - 1, case.callers do
          local answer = a:call("b", "double", each) -- before the sum is read: others add to it meanwhile
          sum = sum + answer
        end
      end)
    end
    for _, routine in ipairs(routines) do distag.join(routine) end
    same(sum, case.sum)
  end)
end
cases["workers: a function that raises"] = function(case)
  group({ find = function() error("no such user") end, echo = echo }, function(a)
    same(fails(case, "", a.call, a, "b", "find").class, "user")
    same(a:call("b", "echo", 3), 3)
  end)
end
cases["workers: status 1042 is kept with its rank"] = function(case)
  local functions = { refuse = function() error(distag.error("not today", 1042)) end }
  functions.pass_on = function() return distag.current_call().worker:call("b", "refuse") end
  group(functions, function(a)
    fails(case, "not today", a.call, a, "b", "refuse")
    fails(case, "not today", a.call, a, "a", "pass_on")
  end)
end
cases["workers: an unknown function"] = function(case)
  group({}, function(a) same(fails(case, "", a.call, a, "b", case["function"]).class, "usage") end)
end
-- A function that waits until it is cancelled, and what it has seen.
local function waiting()
  local seen = { began = 0, heard = 0 }
  return function()
    local call = distag.current_call()
    assert(not call:is_cancelled())
    seen.began = seen.began + 1
    while not call:is_cancelled() do distag.poll(0.001) end
    seen.heard = seen.heard + 1
  end, seen
end
cases["workers: a deadline"] = function(case)
  local wait, seen = waiting()
  group({ wait = wait }, function(a)
    same(fails(case, "", a.call_with, a, { timeout = case.timeout_ms / 1000 }, "b", "wait").class, "gave_up")
    while seen.heard < seen.began do distag.poll(0.02) end
  end)
end
cases["workers: a cancellation reaches the callee"] = function(case)
  local kept
  local function wait()
    kept = distag.current_call()
    while not kept:is_cancelled() do coroutine.yield() end
  end
  group({ wait = wait }, function(a)
    local future = a:call_async("b", "wait")
    while not kept do distag.poll(0.02) end
    assert(not kept:is_cancelled())
    future:cancel()
    fails(case, "", future.await, future)
    while not kept:is_cancelled() do distag.poll(0.02) end
  end)
end
cases["workers: a deferred reply from another thread"] = function(case)
  local began, answer
  local function later()
    began = true
    while answer == nil do coroutine.yield() end
    return answer
  end
  group({ later = later }, function(a)
    local future = a:call_async("b", "later")
    while not began do distag.poll(0.02) end
    assert(not future:is_done())
    distag.spawn(function() answer = case.answer end)
    same(future:await(), case.answer)
  end)
end
cases["workers: a second worker of another job"] = function(case)
  group({ double = double }, function(a)
    group({ double = double }, function(c)
      same(c:call("d", "double", 2), 4)
      fails(case, "", a.call, a, "c", "double", 1)
    end, { "c", "d" })
  end)
end

-- ---- values ----

cases["values: every kind there and back"] = function(case)
  group({ echo = echo }, function(a)
    for _, each in ipairs(case.values) do
      local expected = each
      if each == distag.null then expected = nil end
      local found = a:call("b", "echo", each)
      same(found, expected)
      if each == 0 then same(1 / found, 1 / each) end -- the sign of zero
    end
    for _, digits in ipairs(case.bytes_hex) do
      local data = digits:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end)
      same(a:call("b", "echo", distag.bytes(data)).data, data)
    end
    same(a:call("b", "echo", distag.tensor(case.tensor)):numbers(), flat(case.tensor))
    local made = a:remote("b", "echo", { kept = 1 })
    same(a:call("b", "echo", { made })[1]:fetch().kept, 1)
  end)
end
cases["values: 16 deep travels, 17 deep is refused"] = function(case)
  local deep, circle = "leaf", {}
  circle[1] = circle
  for _ = 1, case.depth do deep = { deep } end
  group({ echo = echo }, function(a)
    same(a:call("b", "echo", deep), deep)
    fails(case, "", a.call, a, "b", "echo", { deep })
    fails(case, "", a.call, a, "b", "echo", circle)
  end)
end
cases["values: 2^53 + 1 keeps its value"] = function(case)
  group({ echo = echo }, function(a)
    same(ffi.istype("int64_t", case.value), true)
    same(a:call("b", "echo", case.value), case.value)
    same(a:call("b", "echo", { case.value })[1], case.value)
    fails({ status = 10 }, "args[0]", a.call, a, "b", "echo", 0x8000000000000000ULL)
  end)
end
cases["values: not a number stays one"] = function()
  group({ echo = echo }, function(a)
    local found = a:call("b", "echo", 0 / 0)
    assert(found ~= found)
  end)
end
cases["values: a text with NUL is refused"] = function(case)
  group({ echo = echo }, function(a)
    fails(case, "args[0]", a.call, a, "b", "echo", "a\0b")
    fails(case, "args[0]", a.call, a, "b", "echo", { ["a\0b"] = 1 })
    fails(case, "worker", a.call, a, "b\0", "echo")
    fails(case, "function", a.call, a, "b", "echo\0")
    fails(case, "function", a.register, a, "a\0b", echo)
    fails(case, "name", distag.worker, { name = "a\0b" })
    fails(case, "kind", distag.optimizer, nil, "s\0gd", {})
  end)
end
cases["values: 1 MiB of bytes"] = function(case)
  local data = ("0123456789abcde\0"):rep(case.size / 16)
  group({ echo = echo }, function(a) assert(a:call("b", "echo", distag.bytes(data)).data == data) end)
end
cases["values: an error names the path"] = function(case)
  group({ echo = echo }, function(a)
    for _, strange in ipairs({ print, coroutine.create(print), newproxy(), ffi.new("int[2]") }) do
      fails(case, case.path, a.call, a, "b", "echo", 1, { layers = { strange } })
    end
  end)
end

-- ---- passes through workers ----

cases["backward: through two workers"] = function(case)
  local x = parameter(case.x)
  group({ square = square }, function(a)
    local context = a:context()
    local loss = context:call("b", "square", x):sum()
    same(loss:item(), case.loss)
    context:backward(loss)
    same(context:gradient(x):numbers(), case.gradient)
  end)
end
cases["backward: through A, B and A again"] = function(case)
  local x, functions = parameter(case.x), { square = square }
  functions.twice_square = function(y) return distag.current_call().context:call("a", "square", y) * 2 end
  group(functions, function(a)
    local context = a:context()
    local loss = context:call("b", "twice_square", x):sum()
    same(loss:item(), case.loss)
    context:backward(loss)
    same(context:gradient(x):numbers(), case.gradient)
  end)
end
cases["backward: gradients are read on both sides"] = function(case)
  local x, weight, kept = parameter(case.x), parameter(case.weight), nil
  local functions = { gradient = function() return kept:gradient(weight) end }
  functions.scale = function(y)
    kept = distag.current_call().context
    return y * weight
  end
  group(functions, function(a)
    local context = a:context()
    context:backward(context:call("b", "scale", x):sum())
    same(context:gradient(x):numbers(), case.gradient_of_x)
    same(a:call("b", "gradient"):numbers(), case.gradient_of_weight)
    kept:close()
  end)
end
cases["backward: a failure in a remote custom op names it"] = function()
  group({ run = function(x) return distag.apply_custom("Broken", {}, { x }, 1) end }, function(a)
    fails({ status = 20, origin_rank = 1 }, CURE, a.call, a, "b", "run", parameter({ 1 }))
  end)
  return "refused"
end
cases["objects: behind a reference, used by a function, freed once"] = function()
  group({ make = function() return distag.object({}) end }, function(a)
    local made = a:remote("b", "make")
    fails({ status = 20, origin_rank = 1 }, CURE, made.fetch, made)
  end)
  return "refused"
end

-- ---- lives ----

-- The threads of workers that have ended let go of them a moment later.
local function nothing_is_left(case)
  local deadline = os.time() + 20
  repeat collect() until distag.handle_count() == case.handles or os.time() > deadline
  assert(distag.handle_count() == case.handles, distag.handle_report())
end
cases["life: everything released leaves no handle"] = function(case)
  nothing_is_left(case)
  do
    local x = parameter({ 1, 2 })
    group({ square = square }, function(a)
      local context = a:context()
      context:backward(context:call("b", "square", x):sum())
      distag.optimizer(a, "sgd", { x }, { lr = 0.1 }):step(context)
      assert(a:remote("b", "square", x):fetch():numbers()[2] < 4)
      assert(x:view()[1] < 2)
    end)
  end
  nothing_is_left(case)
end
cases["life: a collector between all steps"] = function(case)
  group({ square = function(x) collectgarbage() return x * x end }, function(a)
    local x = parameter(case.x)
    collectgarbage()
    local context = a:context()
    collectgarbage()
    local loss = context:call("b", "square", x):sum()
    collectgarbage()
    context:backward(loss)
    collectgarbage()
    same(context:gradient(x):numbers(), case.gradient)
  end)
end
cases["life: a worker shut down twice"] = function(case)
  group({}, function(a, b)
    local other = b:shutdown_async()
    same(a:shutdown().clean, case.clean)
    same(a:shutdown().clean, case.clean)
    same(other:await().clean, case.clean)
  end)
  local alone = support.create({})[1]
  alone:close()
  alone:close()
end
cases["life: use after close is an error"] = function(case)
  local x, workers = distag.tensor(1), support.create({ echo = echo })
  x:close()
  x:close()
  for _, name in ipairs({ "item", "numbers", "view", "snapshot", "relu", "with_grad" }) do
    fails(case, "", x[name], x)
  end
  support.start(workers)
  local context = workers[1]:context()
  context:close()
  fails(case, "", context.call, context, "b", "echo", 1)
  fails(case, "", context.backward, context, parameter(1) * 1)
  for _, each in ipairs(workers) do
    each:shutdown_async(0)
    each:close()
  end
  fails(case, "", workers[1].call, workers[1], "b", "echo", 1)
  fails(case, "", x.write, x, 1)
  fails(case, "", x.add_scaled, x, parameter(1), 1)
end
local function leave(calls)
  local workers = support.create({ hang = function() while true do coroutine.yield() end end })
  support.start(workers)
  local futures = {}
  for index = 1, calls do futures[index] = workers[1]:call_async("b", "hang") end
  distag.poll(0.02)
  assert(#futures == calls)
end
cases["life: leaving main with calls open"] = function(case)
  local command = ("timeout %d /usr/bin/luajit %s leave %d 2>&1; echo $?"):format(case.seconds, arg[0], case.calls)
  for _ = 1, case.runs / 2 do
    local one, other = io.popen(command), io.popen(command)
    same(one:read("*a"), case.exit_code .. "\n")
    same(other:read("*a"), case.exit_code .. "\n")
    one:close()
    other:close()
  end
end
ffi.cdef("int fork(void); int waitpid(int child, int *status, int flags); void _exit(int code);")
cases["life: a fork"] = function(case)
  group({ echo = echo }, function(a)
    local x, status = distag.tensor(4), ffi.new("int[1]")
    local child = ffi.C.fork()
    if child == 0 then
      local is_ok, problem = pcall(function()
        fails(case, "", a.call, a, "b", "echo", 1)
        fails(case, "", x.add_scalar, x, 1)
        x:close()
        group({ echo = echo }, function(c) same(c:call("b", "echo", 5), 5) end)
      end)
      if not is_ok then io.stderr:write("child: ", tostring(problem), "\n") end
      ffi.C._exit(is_ok and 7 or 1)
    end
    assert(ffi.C.waitpid(child, status, 0) == child)
    same(status[0], 7 * 256)
    same(a:call("b", "echo", 8), 8)
  end)
end
cases["report: stats and reports parse"] = function(case)
  group({ double = double }, function(a)
    local context = a:context()
    context:call("b", "double", 3)
    local stats, report = a:stats(), support.parse(a:report())
    assert(stats.calls_made >= 1)
    for _, name in ipairs(case.stats) do assert(stats[name], name) end
    for _, name in ipairs(case.report) do assert(report[name] ~= nil, name) end
    assert(support.parse(context:report()).passes and support.parse(distag.handle_report()))
    same(context:info().known_count, 1)
    context:close()
    fails({ status = 10 }, "", context.info, context)
  end)
end

-- ---- the run ----

if arg[1] == "leave" then return leave(tonumber(arg[2])) end
local number, failed = 0, 0
for _, case in ipairs(support.parse(support.read(repository .. "/bindings/conformance/cases.json")).cases) do
  if not arg[2] or case.name:find(arg[2], 1, true) then
    number = number + 1
    local is_ok, result = xpcall(cases[case.name] or error("there is no case " .. case.name), function(each)
      local text = distag.is_error(each) and tostring(each) or debug.traceback(tostring(each))
      io.stderr:write(case.name, ": ", text, "\n")
    end, case)
    if not is_ok then failed = failed + 1 end
    local verdict = is_ok and "ok " or "not ok "
    print(verdict .. number .. " - " .. case.name .. (is_ok and result == "refused" and " # refused" or ""))
    collectgarbage()
  end
end
print("1.." .. number)
os.exit(failed == 0 and 0 or 1, true)
