-- A finalizer of the user fails at each place where memory is asked for: that is raised there, and no handle
-- is lost by it. Without the compiler of LuaJIT, which ends the process at such a failure, with distag or without.
-- usage: luajit failing_finalizers.lua
require("jit").off()
local distag = require("distag")

-- One runs at each place, and the last of `left` fails.
local left, planted = 0, {}
local function plant()
  local proxy = newproxy(true)
  getmetatable(proxy).__gc = function()
    left = left - 1
    if left > 0 then plant() elseif left == 0 then error(planted, 0) end
  end
end
local function fails_at(place, run, ...)
  collectgarbage("setpause", 0)
  collectgarbage("setstepmul", 0) -- a step is a whole cycle, and the next one is due at once
  collectgarbage()
  left = place
  plant()
  local is_ok, problem = pcall(run, ...)
  left = -1
  collectgarbage("setpause", 200)
  collectgarbage("setstepmul", 200)
  if is_ok then return false end
  assert(problem == planted, "another failure")
  return true
end
local function handles()
  for _ = 1, 3 do collectgarbage() end -- what is held by what is collected goes in the next one
  return distag.handle_count()
end

local x = distag.tensor({ 1, 2 }, "float64"):with_grad()
local context = distag.context()
context:backward(distag.sum(distag.mul(x, x)))
local runs = {
  op = function() return distag.relu(x) end,
  ["op of two"] = function() return distag.add(x, x) end,
  ["op with attributes"] = function() return distag.sum(x, { 0 }) end,
  ["op of many"] = function() return distag.split(x, { 1, 1 }, 0) end,
  tensor = function() return distag.tensor({ 3, 4 }) end,
  elements = function() return x:snapshot():numbers() end,
  gradient = function() return context:gradient(x) end,
  context = function() return distag.context() end,
  optimizer = function() return distag.optimizer(nil, "sgd", { x }, { lr = 1 }) end,
  worker = function() return distag.worker({ name = "a", rendezvous = "inproc://never", world_size = 1 }):close() end,
}
for name, run in pairs(runs) do
  local before, place = handles(), 1
  while fails_at(place, run) do
    local after = handles()
    assert(after == before, name .. ", place " .. place .. ": " .. after - before .. " handles are lost")
    place = place + 1
  end
  assert(place > 3, name .. ": no finalizer failed")
  print("ok - " .. name .. ": " .. place - 1 .. " places")
end
