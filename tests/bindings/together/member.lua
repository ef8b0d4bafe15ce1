-- A member of the group in Lua: see README.md. usage: luajit member.lua RANK SIZE RENDEZVOUS DIGITS FIRST STEPS
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

ffi.cdef([[
struct together_pollfd { int fd; short events, revents; };
int poll(struct together_pollfd *fds, unsigned long count, int timeout);
ptrdiff_t read(int fd, void *buffer, size_t size);
]])
-- Serves until the standard input ends, and gives each line of it to `take`: a read that waits would serve nothing.
local function serve(take)
  local input, buffer, text = ffi.new("struct together_pollfd[1]", { { fd = 0, events = 1 } }), ffi.new("char[64]"), ""
  while true do
    distag.poll(0.02)
    if ffi.C.poll(input, 1, 0) > 0 then
      local found = ffi.C.read(0, buffer, 64)
      if found <= 0 then return end
      text = text .. ffi.string(buffer, found)
      text = text:gsub("(.-)\n", function(line)
        take(line)
        return ""
      end)
    end
  end
end

-- What is sent there and back.
local function parcel(number)
  local bytes = {}
  for index = 0, 255 do bytes[index + 1] = string.char((index + 31 * rank + number) % 256) end
  return { { rank, number, 9007199254740993LL }, { from = "layer" .. rank, number = number },
           ("Grüße aus Schicht %d, Nr. %d: äöüß €"):format(rank, number),
           distag.bytes(table.concat(bytes):rep(4096)), distag.randn(1000 + 100 * rank + number, { 8, 8 }) }
end
local function is_unchanged(found, sent)
  local same = #found == #sent and #found[1] == 3 and found[2].from == sent[2].from
  same = same and found[2].number == sent[2].number
  for index = 1, 3 do same = same and found[1][index] == sent[1][index] end
  same = same and found[3] == sent[3] and found[4].data == sent[4].data
  return same and found[5]:eq(sent[5]):all():item() == 1 and #found[5]:shape() == 2
end
local function exchange(worker, count)
  local calls, unchanged = {}, 0
  for number = 0, count * size - 1 do
    if number % size ~= rank then
      calls[#calls + 1] = worker:call_async("layer" .. number % size, "echo", parcel(number))
    end
  end
  for _, call in ipairs(calls) do
    local found = call:await()
    unchanged = unchanged + (is_unchanged(found, parcel(found[1][2])) and 1 or 0)
  end
  io.write("exchanged ", unchanged, "\n")
  io.flush()
end

local worker = distag.worker({ name = "layer" .. rank, rank = rank, world_size = size,
                               rendezvous = arg[3],
                               functions = { forward = forward, step = step, echo = function(x) return x end } })
sgd = distag.optimizer(worker, "sgd", { weight, bias }, { lr = 0.1, momentum = 0.9 })
local is_ok, problem = pcall(function()
  worker:start(30)
  if first < 0 then
    exchange(worker, steps)
    serve(function() end)
  end
  for turn = 0, first < 0 and -1 or size - 1 do
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
  serve(function(line)
    for number = 0, tonumber(line) - 1 do train_step(worker, 0, number, BATCH * number) end
  end)
  os.exit(3, true)
end
