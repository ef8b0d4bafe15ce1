-- Answers calls until it is asked to stop, by a call of "stop". (Lua hears no signal: a SIGTERM ends it at once.)
--
--   luajit service.lua file:///tmp/group       serves as "service"
--   luajit service.lua file:///tmp/group ask   joins the group, calls it, and asks it to stop
local distag = require("distag")

local function serve(rendezvous)
  local is_asked = false
  local function stop()
    is_asked = true
    return "stopping"
  end
  local worker = distag.worker({ name = "service", world_size = -1, rendezvous = rendezvous,
                                 functions = { mean = function(x) return x:mean() end, stop = stop } })
  worker:start(30)
  print(worker:name() .. " serves")
  io.stdout:flush()
  while not is_asked do distag.poll(1) end -- functions run in here
  worker:shutdown(10)                      -- the answer to "stop" goes out first
  print("served " .. worker:stats().calls_served .. " calls")
end

local function ask(rendezvous)
  local worker = distag.worker({ name = "client", rank = -1, world_size = -1, rendezvous = rendezvous })
  worker:start(30)
  print("mean " .. worker:call("service", "mean", distag.tensor({ 1, 2, 6 })):item())
  print(worker:call("service", "stop"))
  worker:shutdown(10)
end

if not arg[1] then
  io.stderr:write("usage: luajit service.lua RENDEZVOUS [ask]\n")
  os.exit(2)
end
local run = arg[2] and ask or serve
local is_ok, problem = pcall(run, arg[1])
if not is_ok then
  io.stderr:write(tostring(problem), "\n")
  os.exit(1)
end
