-- What a program may give wrongly: the argument and the place in it are named, and nothing is lost. usage: luajit
-- arguments.lua
io.stdout:setvbuf("no")
package.path = arg[0]:gsub("arguments%.lua$", "?.lua;") .. package.path
local distag = require("distag")
local ffi = require("ffi")
local units = require("units")
local test, same, fails, group = units.test, units.same, units.fails, units.group
local function echo(x) return x end

test("options and types that are wrong are refused", function()
  local options = { name = "w", world_size = 1, rendezvous = "inproc://wrong" }
  local function refused(part, changed)
    for name, content in pairs(options) do changed[name] = changed[name] or content end
    fails(10, part, distag.worker, changed)
  end
  refused("there is no option ranks", { ranks = 1 })
  refused("rank: a number is wanted, not one, a string", { rank = "one" })
  refused("rank: a number is wanted, not 0, a string", { rank = "0" })
  refused("name: a string is wanted", { name = 5 })
  refused("a function is wanted for f, and a number is there", { functions = { f = 1 } })
  refused("call_timeout: seconds from 0 on, or distag.FOREVER, are wanted, not -2", { call_timeout = -2 })
  refused("lease: a number is wanted, not true", { lease = true })
  fails(10, "a table of options is wanted", distag.worker)
  group({ echo = echo }, function(a)
    fails(10, "there is no option timeouts", a.call_with, a, { timeouts = 1 }, "b", "echo")
    fails(10, "timeout: a number is wanted, not soon", a.call_with, a, { timeout = "soon" }, "b", "echo")
    fails(10, "timeout: a number is wanted, not nan", a.call_with, a, { timeout = 0 / 0 }, "b", "echo")
    fails(10, "timeout: seconds from 0 on", a.call_with, a, { timeout = -0.5 }, "b", "echo")
    fails(10, "seconds: a number is wanted, not soon", a.all_gather, a, 1, "soon")
    fails(10, "seconds: a number is wanted, not soon", a.start, a, "soon")
    fails(10, "seconds: seconds from 0 on", a.shutdown, a, -3)
    fails(10, "spawn: a function is wanted, and a number is there", distag.spawn, 5)
    fails(10, "scope: a function is wanted, and a number is there", distag.scope, 5)
    fails(10, "trace: a function is wanted, and a nil is there", a.trace, a, "step")
    fails(10, "register: a function is wanted for f, and a table is there", a.register, a, "f", {})
    local x = { distag.tensor(1):with_grad() }
    fails(10, "a worker is wanted", distag.optimizer, {}, "sgd", x)
    local sgd = distag.optimizer(a, "sgd", x, { lr = 1 })
    same(select("#", distag.optimizer(a, "sgd", x, { lr = 1 })), 1)
    fails(10, "step: a context is wanted, and a worker is there", sgd.step, sgd, a)
    fails(10, "lr: a number is wanted", distag.optimizer, a, "sgd", x, { lr = "much" })
    fails(10, "a table is wanted, and a number is there", distag.concat, 1, 0)
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
    fails(10, "args[0]" .. ("[0]"):rep(16) .. ": nested deeper", a.call, a, "b", "echo", { deep })
    fails(10, "args[1].layers[0]: ", a.call, a, "b", "echo", 1, { layers = { "\255" } })
    fails(10, "args[1].layers[0]: ", a.call, a, "b", "echo", 1, { layers = { { ["\255"] = 1 } } })
    a:register("bad", function() return { layers = { "\255" } } end)
    fails(10, "answer.layers[0]: ", a.call, a, "a", "bad")
    fails(10, "zeros: dtype: ", distag.zeros, { 2 }, "\255")
    local closed = distag.tensor(1)
    closed:close()
    closed:close()
    fails(10, "closed", a.call, a, "b", "echo", closed)
    fails(10, "the tensor is closed", closed.item, closed)
    fails(10, "a tensor is wanted", distag.relu, ffi.new("int"))
  end)
end)

test("what is closed is told as closed", function()
  local w = distag.worker({ name = "w", world_size = 1, rendezvous = "inproc://told", functions = { echo = echo } })
  w:start(20)
  local x, context, rref, future = distag.tensor({ 2 }):with_grad(), w:context(), w:remote("w", "echo", 1),
                                   w:call_async("w", "echo", 1)
  local sgd = distag.optimizer(w, "sgd", { x }, { lr = 1 })
  local within = w:context()
  future:await()
  rref:fetch()
  fails(10, "a context without a worker makes no calls", distag.context().call, distag.context(), "w", "echo")
  local function all_fail(kind, object, calls)
    object:close()
    for name, given in pairs(calls) do
      fails(10, "the " .. kind .. " is closed", object[name], object, unpack(given))
    end
  end
  all_fail("context", context, { call = { "w", "echo" }, call_async = { "w", "echo" }, call_with = { {}, "w", "echo" },
                                 remote = { "w", "echo" }, backward = { x }, gradient = { x }, info = {}, report = {} })
  all_fail("rref", rref, { fetch = {}, owner = {} })
  all_fail("future", future, { await = {}, is_done = {}, cancel = {} })
  all_fail("optimizer", sgd, { set = { "lr", 1 }, step = { within }, clip = { within, 1 }, save = {}, load = { {} } })
  all_fail("tensor", x, { item = {}, numbers = {}, view = {}, snapshot = {}, assign = { distag.tensor(1) }, relu = {},
                          write = { { 1 } }, with_grad = {}, add = { distag.tensor(1) }, sum = {} })
  all_fail("worker", w, { call = { "w", "echo" }, call_async = { "w", "echo" }, remote = { "w", "echo" }, start = {},
                          shutdown = {}, register = { "f", echo }, unregister = { "f" }, name = {}, member = { 0 },
                          ranks = {}, rank = {}, context = {}, all_gather = { 1 }, stats = {}, metrics = {},
                          report = {}, group_report = {}, start_trace = {}, stop_trace = {}, trace = { "t", echo } })
end)

-- What a user gets wrong is an error of distag that names the place, and nothing is lost.
test("bad input, place by place", function()
  local x, grid, circle = distag.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }), "{devices=[2]0,1}", {}
  local image, window = distag.zeros({ 1, 1, 4, 4 }), distag.ones({ 1, 1, 2, 2 })
  circle[1] = circle
  local function made(name, ...)
    local given, count = { ... }, select("#", ...)
    return function() return distag[name](unpack(given, 1, count)) end
  end
  local worker = distag.worker({ rank = 0, world_size = 1, rendezvous = "inproc://bad input" })
  worker:start(20)
  local context, future = worker:context(), worker:call_async("worker0", "none")
  local function backward(options) return function() context:backward_with(options, x) end end
  local cases = {
    { "zeros: shape[1]: a whole number is wanted, not 1.5", made("zeros", { 2, 1.5 }) },
    { "zeros: shape[0]: a whole number is wanted, not 2.0000000000000004", made("zeros", { 2 + 2 ^ -51 }) },
    { "zeros: shape[0]: a number is wanted, not two", made("zeros", { "two" }) },
    { "zeros: shape: a number is wanted, not two", made("zeros", "two") },
    { "zeros: shape[0]: a number is wanted, not nan", made("zeros", { 0 / 0 }) },
    { "zeros: shape[0]: 9.2233720368547758e+18 does not fit int64", made("zeros", { 2 ^ 63 }) },
    { "zeros: shape[0]: 9223372036854775808ULL does not fit int64", made("zeros", { 2ULL ^ 63 }) },
    { "zeros: shape: 9223372036854775808ULL does not fit int64", made("zeros", 2ULL ^ 63) },
    { "zeros: shape: the table is a list of 1, and has the key 3 too", made("zeros", { 2, nil, 3 }) },
    { "zeros: shape: the table is a list of 1, and has the key rows too", made("zeros", { 2, rows = 3 }) },
    { "zeros: dtype: a string is wanted", made("zeros", { 2 }, 5) },
    { "\"complex\" is no dtype", made("zeros", { 2 }, "complex") },
    { "tensor: no dtype complex", made("tensor", 1, "complex") },
    { "tensor[1]: a string stands where a number is wanted", made("tensor", { 1, "2" }) },
    { "tensor[0]: a tensor stands where a number is wanted", made("tensor", { x }) },
    { "tensor: a nil stands where a number is wanted", made("tensor") },
    { "tensor[1]: a table of 1 stands beside one of 2", made("tensor", { { 1, 2 }, { 3 } }) },
    { "tensor[1]: a table stands where a number is wanted", made("tensor", { 1, { 2 } }) },
    { "tensor[1]: a number stands where a table of 1 is wanted", made("tensor", { { 1 }, 2 }) },
    { "tensor[1]: the table is a list of 1, and has the key 3 too", made("tensor", { { 1, 2, 3 }, { 1, nil, 3 } }) },
    { "tensor[0]: the table is a list of 2, and has the key bias too", made("tensor", { { 1, 2, bias = 3 } }) },
    { "write[1]: the table is a list of 0, and has the key 2 too", function()
      x:write({ { 1, 2, 3 }, { nil, 5, 6 } })
    end },
    { "nested deeper than 64, or in a circle", made("tensor", circle) },
    { "tensor[1]: of int64: a whole number is wanted, not 1.5", made("tensor", { 1, 1.5 }, "int64") },
    { "tensor: of int64: 9.2233720368547758e+18 does not fit int64", made("tensor", 2 ^ 63, "int64") },
    { "tensor: of int64: 9223372036854775808ULL does not fit int64", made("tensor", 2ULL ^ 63, "int64") },
    { "tensor: of int64: a number is wanted, not nan", made("tensor", 0 / 0, "int64") },
    { "tensor[0]: of bool: a whole number from 0 to 1 is wanted, not 2", made("tensor", { 2 }, "bool") },
    { "sum: dims: a number is wanted, not all", function() return x:sum("all") end },
    { "sum: keepdim: a boolean is wanted, and a number is there", function() return x:sum({ 0 }, 1) end },
    { "add_scalar: value: a number is wanted, and a string is there", function() return x:add_scalar("1") end },
    { "argmax: dim: a whole number is wanted, not 0.5", function() return x:argmax(0.5) end },
    { "split: sizes is missing", function() return x:split() end },
    { "split: sizes: a number is wanted, not x", function() return x:split("x", 0) end },
    { "split: sizes: the table is a list of 1, and has the key 3 too", function()
      return x:split({ 1, nil, 1 }, 0)
    end },
    { "split: ", function() return x:split(1, 0) end },
    { "split: ", function() return x:split({ 1, 1 }, 1) end },
    { "concat: an input: the table is a list of 1, and has the key 3 too", made("concat", { x, nil, x }, 0) },
    { "add: an input: a tensor is wanted, and a string is there", function() return x + "1" end },
    { "mul: an input: a tensor is wanted, and a table is there", function() return {} * x end },
    { "matmul", function() return x:matmul(x) end },
    { "cross_entropy", function() return x:cross_entropy(x) end },
    { "cross_entropy: ignore_index: a whole number is wanted, not 0.5", function()
      return x:cross_entropy(distag.tensor({ 0, 1 }, "int64"), nil, "mean", 0.5)
    end },
    { "bytes: a string is wanted, and a number is there", made("bytes", 1) },
    { "map: a table is wanted, and a number is there", made("map", 1) },
    { "float: a number is wanted, and a string is there", made("float", "1") },
    { "wait_all[0]: a future is wanted, and a number is there", made("wait_all", { 1 }) },
    { "wait_all: the table is a list of 0, and has the key 2 too", made("wait_all", { nil, future }) },
    { "wait_all: the table is a list of 1, and has the key b too", made("wait_all", { future, b = future }) },
    { "seconds: a number is wanted, not soon", made("poll", "soon") },
    { "the shape[0]: a number is wanted, not four", made("visualize_sharding", grid, { "four" }) },
    { "dims[1]: a whole number is wanted, not 0.5", made("visualize_sharding", grid, nil, { dims = { 0, 0.5 } }) },
    { "dims: the two dims that are drawn are wanted, not 1", made("visualize_sharding", grid, nil, { dims = { 0 } }) },
    { "width: a whole number from 0 to 4294967295", made("visualize_sharding", grid, nil, { width = 40.5 }) },
    { "color: a boolean is wanted, and a number is there", made("visualize_sharding", grid, nil, { color = 0 }) },
    { "max_bytes: a whole number from 0 to 9007199254740991", function() worker:start_trace({ max_bytes = -1 }) end },
    { "rank: a whole number from -1 to 2147483647 is wanted, not 0.5", made("worker", { rank = 0.5 }) },
    { "world_size: a whole number from -1 to", made("worker", { world_size = 2 ^ 40 }) },
    { "max_message_bytes: a whole number from 0 to", made("worker", { max_message_bytes = -1 }) },
    { "max_in_flight_bytes: a whole number from 0 to", made("worker", { max_in_flight_bytes = 0.5 }) },
    { "call_timeout: a number is wanted, not long", made("worker", { call_timeout = "long" }) },
    { "functions: a table is wanted, and a string is there", made("worker", { functions = "x" }) },
    { "functions: a table is wanted, and a number is there", made("worker", { functions = 5 }) },
    { "settings: a table is wanted, and a number is there", made("optimizer", nil, "sgd", { x }, 5) },
    { "settings: a table is wanted, and a string is there", made("optimizer", nil, "sgd", { x }, "lr") },
    { "parameters: a table is wanted, and a tensor is there", made("optimizer", nil, "sgd", x) },
    { "parameters[1]: a function", made("optimizer", nil, "sgd", { x, print }) },
    { "parameters: the table is a list of 1, and has the key 3 too", made("optimizer", nil, "sgd", { x, nil, x }) },
    { "seeds: a table is wanted, and a tensor is there", backward({ seeds = x }) },
    -- The windows of conv2d and the windows of max_pool2d have two numbers: ../lists/lists.txt.
    { "stride", made("conv2d", image, window, nil, { 1, 1, 1 }) },
    { "padding", made("conv2d", image, window, nil, { 1, 1 }, { 0, 0, 0 }) },
    { "kernel", made("max_pool2d", image, { 2, 2, 2 }, { 1, 1 }) },
    { "stride", made("max_pool2d", image, { 2, 2 }, { 1, 1, 1 }) },
    { "padding", made("max_pool2d", image, { 2, 2 }, { 1, 1 }, { 0 }) },
    { "seed 0 of 1 roots", backward({ seeds = { [0] = x } }) },
    { "seed 0.5 of 1 roots", backward({ seeds = { [0.5] = x } }) },
    { "remote_roots: a table is wanted, and a number is there", backward({ remote_roots = 1 }) },
    { "remote_roots: the table is a list of 0, and has the key 2 too", backward({ remote_roots = { nil, x } }) },
    { "timeout: a number is wanted, not soon", backward({ timeout = "soon" }) },
    { "retain_graph: a boolean is wanted, and a number is there", backward({ retain_graph = 0 }) },
    { "create_graph: a boolean is wanted, and a number is there", backward({ create_graph = 0 }) },
    { "fast: a boolean is wanted, and a string is there", backward({ fast = "no" }) },
    { "wait_all: a table is wanted, and a nil is there", made("wait_all") },
    { "dims: a table is wanted, and a number is there", made("visualize_sharding", grid, nil, { dims = 1 }) },
    { "a table of options is wanted, and a nil is there", function() worker:call_with(nil, "b", "f") end },
    { "a table of options is wanted, and a boolean is there", function() worker:call_with(false, "b", "f") end },
    { "a table of options is wanted, and a nil is there", function() context:call_with(nil, "b", "f") end },
    { "a table of options is wanted, and a boolean is there", function() context:call_with(false, "b", "f") end },
  }
  for index, each in ipairs(cases) do
    local is_ok, problem = pcall(fails, 10, each[1], each[2])
    if not is_ok then error(index .. ", " .. each[1] .. ": " .. tostring(problem), 0) end
  end
  same(x:numbers(), { 1, 2, 3, 4, 5, 6 })
  same(distag.tensor({ true, false, 1 }, "bool"):numbers(), { 1, 0, 1 })
  same(distag.zeros({ 2LL }):shape(), { 2 })
  same(distag.zeros({ 2ULL, 3 }):shape(), { 2, 3 })
  same(distag.tensor(2ULL ^ 62, "int64"):item(), 2LL ^ 62)
  same(distag.tensor(0x7fffffffffffffffULL, "int64"):item(), 0x7fffffffffffffffLL)
  same(x:add_scalar(2LL):numbers(), { 3, 4, 5, 6, 7, 8 })
  same(x:mul_scalar(3ULL):numbers(), { 3, 6, 9, 12, 15, 18 })
  context:close()
  worker:shutdown(20)
  worker:close()
end)

test("bad values of calls and answers", function()
  local itself, sparse = {}, { 1, [5] = 5 }
  itself.itself = itself
  local answers = { ["a function"] = function() return print end, ["itself"] = function() return itself end,
                    ["the call"] = function() return distag.current_call() end,
                    ["a list with a name"] = function() return { 1, name = 2 } end,
                    ["nothing"] = function() end, ["more than one"] = function() return 1, 2 end }
  function answers.own_worker() return distag.current_call().worker end
  answers.echo = echo
  group(answers, function(a)
    fails(10, "answer: a function is no value", a.call, a, "b", "a function")
    fails(10, "answer.itself.itself", a.call, a, "b", "itself")
    fails(10, "answer", a.call, a, "b", "the call")
    fails(10, "answer: a worker is no value", a.call, a, "b", "own_worker")
    fails(10, "args[0]: a future is no value", a.call, a, "b", "echo", a:call_async("b", "echo", 1))
    fails(10, "args[0].of: a context is no value", a.call, a, "b", "echo", { of = a:context() })
    fails(10, "args[0]: a cdata is no value", a.call, a, "b", "echo", ffi.new("float[1]"))
    fails(10, "answer: the table is a list of 1, and has the key name too", a.call, a, "b", "a list with a name")
    same(a:call("b", "nothing"), nil)
    same(a:call("b", "more than one"), 1)
    fails(10, "args[1].layers[0]: the table is a list of 1", a.call, a, "b", "echo", 1, { layers = { sparse } })
    fails(10, "args[0]: the table is a list of 1, and has the key 3 too", a.call, a, "b", "echo", { 1, nil, 3 })
    fails(10, "args[0].deep[1]: the text has a NUL", a.call, a, "b", "echo", { deep = { 1, "a\0b" } }, 2)
    fails(10, "args[0]: 9223372036854775808ULL does not fit", a.call, a, "b", "echo", 2ULL ^ 63)
    fails(10, "the name of a worker", a.call, a, nil, "echo")
    fails(10, "the name of a function", a.call, a, "b", 5)
    fails(12, "nobody", a.call, a, "nobody", "echo")
    same(a:call("b", "echo", { 1, distag.null, 3 }), { 1, distag.null, 3 })
  end)
end)

test("what is closed says so", function()
  local tensor, future, rref, kept
  group({ echo = echo, keep = function(x) kept = x end }, function(a)
    tensor, rref, future = distag.tensor({ 1, 2 }), a:remote("b", "echo", 1), a:call_async("b", "echo", 1)
    rref:fetch()
    future:await()
    a:call("b", "keep", { tensor })
    for _, each in ipairs({ tensor, rref, future, kept[1] }) do
      each:close()
      each:close()
    end
    for _, name in ipairs({ "dtype", "id", "count", "shape", "requires_grad" }) do
      fails(10, "the tensor is closed", tensor[name], tensor)
    end
    for _, name in ipairs({ "item", "numbers", "view", "snapshot", "with_grad", "sum", "clone" }) do
      fails(10, "", tensor[name], tensor)
    end
    fails(10, "", tensor.write, tensor, { 1, 2 })
    fails(10, "the tensor is closed", kept[1].shape, kept[1])
    fails(10, "the rref is closed", rref.owner, rref)
    fails(10, "", rref.fetch, rref)
    local fetched, context = a:remote("b", "echo", 1), a:context()
    context:close()
    fails(10, "fetch: the context is closed", fetched.fetch, fetched, context)
    fails(10, "", context.call, context, "b", "echo", 1)
    fails(10, "", context.backward, context, distag.tensor(1):with_grad():sum())
    fails(10, "relu: an input: the tensor is closed", tensor.relu, tensor)
    for _, name in ipairs({ "is_done", "await", "cancel" }) do
      fails(10, "the future is closed", future[name], future)
    end
    same(tostring(tensor), "closed tensor")
  end)
  local worker = distag.worker({ rank = 0, world_size = 1, rendezvous = "inproc://closed" })
  worker:close()
  for _, name in ipairs({ "name", "rank", "world_size" }) do
    fails(10, "the worker is closed", worker[name], worker)
  end
  for _, name in ipairs({ "start", "context", "report", "ranks", "shutdown" }) do
    fails(10, "", worker[name], worker)
  end
  fails(10, "", worker.call, worker, "b", "echo")
  local x = distag.tensor(1):with_grad()
  fails(10, "optimizer: the worker is closed", distag.optimizer, worker, "sgd", { x })
end)

units.run()
