-- A game that is restarted three times, each time in the middle of a step of training in its own worker.
local distag = require("distag")
local weight, worker, frame, steps = distag.zeros({ 4 }):with_grad(), nil, 0, 0

local function step()
  local context = worker:context()
  local loss = context:call("own", "error_of", weight):sum()
  context:backward(loss)
  weight:add_scaled(context:gradient(weight), -0.1)
  context:close()
  steps = steps + 1
end

local function count_threads()
  for line in io.lines("/proc/self/status") do
    if line:find("^Threads:") then return tonumber(line:match("%d+")) end
  end
end
-- Threads that have ended are seen for a moment longer: none is left in the end of those of the game before.
local function print_threads()
  local file = assert(io.open(os.getenv("RESTARTS") .. ".threads", "a+"))
  local first = file:read("*n")
  for _ = 1, 500 do
    if not first or count_threads() <= first then break end
    love.timer.sleep(0.01)
  end
  if not first then file:write(count_threads(), "\n") end
  file:close()
  print("game: " .. count_threads() .. " threads")
  io.stdout:flush()
end

function love.load()
  print_threads()
  worker = distag.worker({ name = "own", world_size = 1, rank = 0, rendezvous = "inproc://restart", functions = {
    error_of = function(x) return (x - 1) * (x - 1) end,
  } })
  distag.spawn(function()
    worker:start(5)
    while true do step() end
  end)
end

function love.update()
  frame = frame + 1
  distag.poll(0)
  if steps < 20 then return end
  local file = assert(io.open(os.getenv("RESTARTS"), "a+"))
  file:write("once\n")
  file:seek("set")
  local _, count = file:read("*a"):gsub("once", "")
  file:close()
  print(("game: weight %.3f"):format(weight:numbers()[1]))
  love.event.quit(count <= 3 and "restart" or 0)
  steps = -1000 -- the frames until then count for nothing
end
