-- What unit.lua and arguments.lua share: how tests are named and run, workers in this process, what has to fail.
local distag = require("distag")
local M = {}

local tests, names, groups = {}, {}, 0
function M.test(name, run) names[#names + 1], tests[name] = name, run end
function M.same(found, expected)
  if type(expected) == "table" then
    assert(type(found) == "table" and #found == #expected, "another table")
    for index = 1, #expected do M.same(found[index], expected[index]) end
    return
  end
  if found ~= expected then error(tostring(found) .. " is not " .. tostring(expected), 2) end
end
function M.fails(code, part, run, ...)
  local is_ok, problem = pcall(run, ...)
  assert(not is_ok, "nothing failed")
  assert(distag.is_error(problem), tostring(problem))
  assert(problem.code == code and tostring(problem):find(part, 1, true), problem.code .. ": " .. tostring(problem))
  return problem
end
-- Workers a and b, which offer the same functions; shut down side by side when the test is done.
function M.group(functions, run)
  groups = groups + 1
  local a, b
  local function make(name, rank)
    return distag.worker({ name = name, rank = rank, world_size = 2, rendezvous = "inproc://lua" .. groups,
                           functions = functions })
  end
  a, b = make("a", 0), make("b", 1)
  distag.wait_all({ a:start_async(20), b:start_async(20) })
  local is_ok, problem = pcall(run, a, b)
  distag.wait_all({ a:shutdown_async(20), b:shutdown_async(20) })
  a:close()
  b:close()
  a:close()
  if not is_ok then error(problem, 0) end
end
-- The threads of workers that have ended let go of them a moment later.
function M.nothing_is_left()
  local deadline = os.time() + 60
  repeat
    require("jit").flush() -- a trace holds what it was made with
    for _ = 1, 5 do collectgarbage() end -- what is held by what is collected goes in the next one
  until distag.handle_count() == 0 or os.time() > deadline
  assert(distag.handle_count() == 0, "handles are left: " .. distag.handle_report())
end
-- Runs the tests in the order in which they were made; afterwards no handle is left.
function M.run()
  for number, name in ipairs(names) do
    local is_ok, problem = xpcall(tests[name], function(each)
      return distag.is_error(each) and tostring(each) or debug.traceback(tostring(each))
    end)
    print((is_ok and "ok " or "not ok ") .. number .. " - " .. name)
    assert(is_ok, problem)
  end
  M.nothing_is_left()
  assert(distag.library.distag_get_misuse_count() == 0, "with DISTAG_VALIDATE=1 wrong handles are counted")
end
return M
