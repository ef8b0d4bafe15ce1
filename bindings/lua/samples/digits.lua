-- Trains a classifier of hand-written digits whose layers live in three processes, in any language.
--
--   distag run -n 3 luajit digits.lua DIGITS.CSV [EPOCHS]
--
-- Rank 0, "trainer", has the data, a convolution and the loss; "middle" and "last" have a layer each, and may as well
-- be the program in C (samples/04_digits.c).
local distag = require("distag")

local NAMES, FAN_IN = { "trainer", "middle", "last" }, { 9, 256, 64 }
local SHAPES = { { 16, 1, 3, 3 }, { 64, 256 }, { 10, 64 } }
local BATCH, RATE = 32, 0.2 -- the rate of the first epoch; it falls to 0 in a straight line

-- 16 filters of 3 x 3; 256 to 64; 64 to 10. Normal numbers, scaled by the fan-in (He et al. 2015).
local function make_layer(rank)
  local random = distag.randn(100 + rank, SHAPES[rank + 1])
  local weight = (random * math.sqrt(2 / FAN_IN[rank + 1])):with_grad()
  local bias = distag.zeros({ SHAPES[rank + 1][1] }):with_grad()
  local function forward(x)
    if rank == 0 then
      local filtered = x:reshape({ -1, 1, 8, 8 }):conv2d(weight, bias, { 1, 1 }, { 1, 1 })
      return filtered:relu():max_pool2d({ 2, 2 }):reshape({ -1, 256 })
    end
    local y = x:linear(weight, bias)
    return rank == 2 and y or y:relu()
  end
  -- The parameters stay here, by remote; the optimizer gets a reference to them.
  return { forward = forward, parameters = function() return { weight, bias } end }
end

-- Those to train with, and every fifth line, which is held out: rows of pixels, and their classes.
local function read_images(path)
  local train, held_out, number = { pixels = {}, classes = {} }, { pixels = {}, classes = {} }, 0
  for line in io.lines(path) do
    number = number + 1
    local set, row = number % 5 == 0 and held_out or train, {}
    for digits in line:gmatch("%d+") do row[#row + 1] = tonumber(digits) / 16 end
    set.classes[#set.classes + 1] = table.remove(row) * 16
    set.pixels[#set.pixels + 1] = row
  end
  return train, held_out
end
-- The same order on every run: a linear congruential generator (Knuth, MMIX).
local function shuffle(set, seed)
  local state = seed + 0ULL
  for i = #set.classes, 2, -1 do
    state = state * 6364136223846793005ULL + 1442695040888963407ULL
    local j = tonumber(bit.rshift(state, 33) % i) + 1
    set.pixels[i], set.pixels[j] = set.pixels[j], set.pixels[i]
    set.classes[i], set.classes[j] = set.classes[j], set.classes[i]
  end
end
local function batch(set, first, last)
  local pixels, classes = {}, {}
  for i = first, math.min(last, #set.classes) do
    pixels[#pixels + 1], classes[#classes + 1] = set.pixels[i], set.classes[i]
  end
  return distag.tensor(pixels), distag.tensor(classes, "int64")
end

local function train(worker, own, path, epochs)
  local set, held_out = read_images(path)
  local parameters, steps, spent, accuracy = own.parameters(), 0, 0, 0
  for _, name in ipairs({ "middle", "last" }) do parameters[#parameters + 1] = worker:remote(name, "parameters") end
  local sgd = distag.optimizer(worker, "sgd", parameters)
  -- Through all three processes, by a context or, unrecorded, by the worker.
  local function logits(by, x) return by:call("last", "forward", by:call("middle", "forward", own.forward(x))) end
  -- One batch: forward, backward, step. Gives the loss.
  local function step(first)
    return distag.scope(function() -- closes the tensors that are made in it
      local x, targets = batch(set, first, first + BATCH - 1)
      local context = worker:context()
      local loss = logits(context, x):cross_entropy(targets)
      context:backward(loss)
      sgd:step(context)
      context:close()
      steps = steps + 1
      return loss:item()
    end)
  end
  for epoch = 1, epochs do
    shuffle(set, epoch)
    sgd:set("lr", RATE * (epochs - epoch + 1) / epochs)
    local sum, count, begin = 0, 0, os.clock()
    for first = 1, #set.classes, BATCH do sum, count = sum + step(first), count + 1 end
    spent = spent + os.clock() - begin
    accuracy = distag.scope(function()
      local x, targets = batch(held_out, 1, #held_out.classes)
      return logits(worker, x):argmax(1):eq(targets):cast("float32"):mean():item()
    end)
    print(("epoch %2d of %d   loss %.4f   held-out accuracy %.4f"):format(epoch, epochs, sum / count, accuracy))
  end
  print(("held-out accuracy %.4f on %d images, after %d steps over %d processes"):format(accuracy, #held_out.classes,
                                                                                         steps, #NAMES))
  print(("%.0f steps per second of this processor"):format(steps / spent))
end

local rank = tonumber(os.getenv("RANK"))
if not arg[1] or not NAMES[(rank or 3) + 1] then
  io.stderr:write("usage: distag run -n 3 luajit digits.lua DIGITS.CSV [EPOCHS]\n")
  os.exit(2)
end
local own = make_layer(rank)
local worker = distag.worker({ name = NAMES[rank + 1], functions = own }) -- rank, size and address: from distag run
worker:start(30)
if rank == 0 then train(worker, own, arg[1], tonumber(arg[2] or 30)) end
worker:shutdown() -- serves until all others shut down too
