-- A collector that runs whole at each allocation takes nothing that C still reads, with the compiler of LuaJIT and
-- without: the library refuses a handle that was released. usage: luajit collected.lua
io.stdout:setvbuf("no")
local distag = require("distag")
local jit = require("jit")
require("jit.opt").start("hotloop=3", "hotexit=2")

local function tensor(...) return distag.tensor({ ... }, "float64") end
local function same(found, ...)
  for index, expected in ipairs({ ... }) do
    assert(found[index] == expected, tostring(found[index]) .. " is not " .. expected)
  end
end
-- Each object is in no variable once it is an argument.
local function ops()
  same(distag.relu(tensor(1, -2)):numbers(), 1, 0)
  same(distag.add(tensor(1, 2), tensor(3, 4)):numbers(), 4, 6)
  same((tensor(1, 2) * tensor(3, 4) - 1):numbers(), 2, 7)
  same(distag.sum(tensor(1, 2), { 0 }):numbers(), 3)
  same(distag.concat({ tensor(1), tensor(2), tensor(3) }, 0):numbers(), 1, 2, 3)
  same(distag.linear(distag.tensor({ { 1, 2 } }), distag.tensor({ { 3, 4 } }), nil):numbers(), 11)
  same(tensor(1, 2):reshape({ 2, 1 }):shape(), 2, 1)
  same(tensor(1, 2, 3):split({ 1, 2 }, 0)[2]:numbers(), 2, 3)
  same({ tensor(7):item(), tensor(1, 2):count(), (tensor(1):view())[0] }, 7, 2, 1)
  same(tensor(1, 2):snapshot():clone():numbers(), 1, 2)
  assert(tensor(1, 2):dtype() == "float64")
  local x = tensor(1, 2)
  x:assign(tensor(3, 4))
  x:add_scaled(tensor(1, 1), 2)
  same(x:numbers(), 5, 6)
end
local function passes()
  local x, context = tensor(1, 2):with_grad(), distag.context()
  context:backward_with({ seeds = { tensor(3, 5) } }, x * tensor(1, 1))
  same(context:gradient(x):numbers(), 3, 5)
  distag.optimizer(nil, "sgd", { x }, { lr = 1 }):step(context)
  same(x:numbers(), -2, -3)
  assert(distag.visualize_sharding("{devices=[2]0,1}", { 4 }, { label = "a" .. 1 }):find("a1 0", 1, true))
end
local groups = 0
local function calls(rounds)
  groups = groups + 1
  local functions, workers = { echo = function(each) return each end }, {}
  for rank = 0, 1 do
    workers[rank + 1] = distag.worker({ rank = rank, world_size = 2, rendezvous = "inproc://collected" .. groups,
                                        functions = functions })
  end
  distag.wait_all({ workers[1]:start_async(120), workers[2]:start_async(120) })
  local a = workers[1]
  for _ = 1, rounds do
    same(a:call("worker1", "echo", { tensor(1), { name = tensor(2), ["a" .. 1] = "b" .. 2 } })[1]:numbers(), 1)
    same(a:context():call("worker1", "echo", tensor(3)):numbers(), 3)
    same(a:remote("worker1", "echo", tensor(4)):fetch():numbers(), 4)
    assert(#a:report() > 0 and a:stats().calls_made > 0)
  end
  distag.wait_all({ workers[1]:shutdown_async(120), workers[2]:shutdown_async(120) })
  for _, each in ipairs(workers) do each:close() end
end

for _, switch in ipairs({ "on", "off" }) do
  jit[switch]()
  jit.flush()
  collectgarbage("setpause", 0)
  collectgarbage("setstepmul", 0) -- a step is a whole cycle, and the next one is due at once
  for _ = 1, 6 do
    ops()
    passes()
  end
  calls(2)
  print("ok - the compiler is " .. switch)
end
