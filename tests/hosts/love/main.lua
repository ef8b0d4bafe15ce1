-- The sample of samples/hosts/love as a test runs it: each frame is measured by the clock of the processor.
-- DISTAG_GUARD names the functions of C that may block: calls of frames are counted then, and one that may block ends
-- the test.
local ffi = require("ffi")
ffi.cdef([[
struct measured { long seconds, nanoseconds; };
int clock_gettime(int clock, struct measured *out);
int getpid(void);
]])
local place = ffi.new("struct measured")
local function milliseconds()
  ffi.C.clock_gettime(3, place) -- CLOCK_THREAD_CPUTIME_ID
  return tonumber(place.seconds) * 1e3 + tonumber(place.nanoseconds) / 1e6
end

local is_in_frame, calls = false, 0
local function guard(names)
  local distag, blocking = require("distag"), {}
  for name in names:gmatch("%S+") do blocking[name] = true end
  local C = distag.library
  local guarded = setmetatable({}, { __index = function(_, name)
    if not is_in_frame then return C[name] end
    calls = calls + 1
    if not blocking[name] then return C[name] end
    return function(first, timeout, ...)
      if name == "distag_worker_take_event" and timeout == 0LL then return C[name](first, timeout, ...) end
      io.stderr:write("a frame calls ", name, ", which blocks\n")
      os.exit(9)
    end
  end })
  -- All functions of the module share this variable.
  for index = 1, 100 do
    local name = debug.getupvalue(distag.handle_count, index)
    if name == "C" then return debug.setupvalue(distag.handle_count, index, guarded) end
  end
  error("the module has no C")
end
if os.getenv("DISTAG_GUARD") then guard(os.getenv("DISTAG_GUARD")) end

require("game")
print(("game: process %d, compiled %s"):format(ffi.C.getpid(), tostring(jit.status())))
local update, quit, times = love.update, love.quit, {}
function love.update(...)
  local begin = milliseconds()
  is_in_frame = true
  update(...)
  is_in_frame = false
  times[#times + 1] = milliseconds() - begin
end
function love.quit()
  table.sort(times)
  local function at(part) return times[math.max(1, math.ceil(part * #times))] end
  print(("game: %d frames, %d calls of C, p50 %.3f, p99 %.3f, longest %.3f ms"):format(#times, calls, at(0.5), at(0.99),
                                                                                       at(1)))
  return quit()
end
