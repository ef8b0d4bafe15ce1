-- A member of the group in Lua: see README.md. usage: luajit member.lua RANK SIZE FOLDER DIGITS FIRST STEPS
package.path = arg[0]:gsub("tests/bindings/together/member%.lua$", "bindings/lua/?.lua;") .. package.path
local bit = require("bit")
local distag = require("distag")
local ffi = require("ffi")
local rank, size, first, steps = tonumber(arg[1]), tonumber(arg[2]), tonumber(arg[5]), tonumber(arg[6])
local BATCH, LINES = 32, 1600

local function read_digits(path)
  local data = {}
  for line in io.lines(path) do
    local numbers = {}
    for digits in line:gmatch("%d+") do numbers[#numbers + 1] = tonumber(digits) end
    data[#data + 1] = numbers
  end
  return data
end

local CRC = ffi.new("uint32_t[256]")
for index = 0, 255 do
  local crc = index
  for _ = 1, 8 do
    crc = bit.bxor(bit.rshift(crc, 1), bit.band(crc, 1) == 1 and 0xEDB88320 or 0)
  end
  CRC[index] = crc % 4294967296
end
-- Goes on with a CRC-32 over the bytes of a float32 tensor.
local function crc32(crc, tensor)
  local elements, count = tensor:view()
  local bytes = ffi.cast("const uint8_t *", elements)
  crc = bit.bnot(crc)
  for index = 0, 4 * count - 1 do
    crc = bit.bxor(bit.rshift(crc, 8), CRC[bit.band(bit.bxor(crc, bytes[index]), 255)])
  end
  assert(elements ~= nil) -- which keeps the bytes
  return bit.bnot(crc) % 4294967296
end

local data = read_digits(arg[4])
local inputs, outputs = rank == 0 and 64 or 32, rank == size - 1 and 10 or 32
local weight = (distag.randn(100 + rank, { outputs, inputs }) * 0.2):with_grad()
local bias = distag.zeros({ outputs }):with_grad()
local sgd

local function forward(x)
  local y = distag.linear(x, weight, bias)
  return rank == size - 1 and y or y:relu()
end
local function step()
  local context, crc = distag.current_call().context, 0
  sgd:step(context)
  for _, each in ipairs({ weight, context:gradient(weight), bias, context:gradient(bias) }) do
    crc = crc32(crc, each)
  end
  return crc
end

local function train_step(worker, turn, number, begin)
  local pixels, classes = {}, {}
  for index = 1, BATCH do
    local line, row = data[begin + index], {}
    for place = 1, #line - 1 do row[place] = line[place] / 16 end
    pixels[index], classes[index] = row, line[#line]
  end
  local x, context, printed = distag.tensor(pixels), worker:context(), { turn, number }
  for layer = 0, size - 1 do x = context:call("layer" .. layer, "forward", x) end
  local loss = distag.cross_entropy(x, distag.tensor(classes, "int64"), nil)
  context:backward(loss)
  local bits = loss:view()
  printed[3] = ("%08x"):format(ffi.cast("const uint32_t *", bits)[0])
  for layer = 0, size - 1 do
    printed[4 + layer] = ("%.0f"):format(context:call("layer" .. layer, "step"))
  end
  context:close()
  io.write(table.concat(printed, " "), "\n")
  io.flush()
end

local worker = distag.worker({ name = "layer" .. rank, rank = rank, world_size = size,
                               rendezvous = "file://" .. arg[3], functions = { forward = forward, step = step } })
sgd = distag.optimizer(worker, "sgd", { weight, bias }, { lr = 0.1, momentum = 0.9 })
local is_ok, problem = pcall(function()
  worker:start(30)
  for turn = 0, size - 1 do
    if (first + turn) % size == rank then
      for number = 0, steps - 1 do train_step(worker, turn, number, BATCH * (steps * turn + number) % LINES) end
    end
    worker:all_gather(nil, 120)
  end
  worker:shutdown(30)
end)
if not is_ok then
  if not distag.is_error(problem) then error(problem, 0) end
  io.write("failed ", problem.code, " ", problem.message, "\n")
  io.flush()
  io.read("*a") -- those that are left name who was killed
  os.exit(3, true)
end
