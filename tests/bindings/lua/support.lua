-- What the programs of these tests share: JSON, comparisons, groups of workers in this process.
local distag = require("distag")
local M = {}

-- ---- JSON: null is distag.null, an object distag.map, an integer beyond 2^53 an int64_t ----

local parse_value
local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
local function utf8_of(code)
  if code < 0x80 then return string.char(code) end
  if code < 0x800 then return string.char(0xC0 + math.floor(code / 64), 0x80 + code % 64) end
  return string.char(0xE0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end
local function parse_text(text, at)
  local stop = at
  repeat stop = text:find('["\\]', stop + (text:sub(stop, stop) == "\\" and 2 or 1)) until text:sub(stop, stop) == '"'
  local content = text:sub(at + 1, stop - 1):gsub("\\u(%x%x%x%x)", function(digits)
    return utf8_of(tonumber(digits, 16))
  end)
  return content:gsub("\\(.)", function(letter) return ESCAPES[letter] or letter end), stop + 1
end
local function parse_number(text, at)
  local digits = text:match("^-?[%d.eE+-]+", at)
  local number = tonumber(digits)
  if not digits:find("[.eE]") and math.abs(number) > 9007199254740991 then
    local exact = 0LL
    for digit in digits:gmatch("%d") do exact = exact * 10 - tonumber(digit) end -- below zero there is one more
    number = digits:sub(1, 1) == "-" and exact or -exact
  end
  return number, at + #digits
end
local function parse_items(text, at, close, each)
  at = text:match("^%s*()", at + 1)
  while text:sub(at, at) ~= close do
    at = text:match("^%s*()", each(at))
    if text:sub(at, at) == "," then at = text:match("^%s*()", at + 1) end
  end
  return at + 1
end
local WORDS = { ["true"] = true, ["false"] = false, null = distag.null, NaN = 0 / 0, Infinity = math.huge }
function parse_value(text, at)
  at = text:match("^%s*()", at)
  local first = text:sub(at, at)
  if first == '"' then return parse_text(text, at) end
  if first == "[" then
    local items = {}
    at = parse_items(text, at, "]", function(from)
      items[#items + 1], from = parse_value(text, from)
      return from
    end)
    return items, at
  end
  if first == "{" then
    local entries = distag.map()
    at = parse_items(text, at, "}", function(from)
      local key
      key, from = parse_text(text, from)
      entries[key], from = parse_value(text, text:match("^%s*:()", from))
      return from
    end)
    return entries, at
  end
  local word = text:match("^%a+", at)
  if word then return WORDS[word], at + #word end
  return parse_number(text, at)
end
function M.parse(text) return (parse_value(text, 1)) end
function M.read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

-- ---- comparisons ----

-- Equal in depth: lists with lists, maps with maps, numbers of one kind.
function M.same(found, expected)
  if type(expected) ~= "table" or expected == distag.null then
    if found ~= expected then error(tostring(found) .. " is not " .. tostring(expected), 2) end
    return
  end
  assert(type(found) == "table" and found ~= distag.null, "no table")
  for key, each in pairs(expected) do M.same(found[key], each) end
  for key in pairs(found) do assert(expected[key] ~= nil, "one too many: " .. tostring(key)) end
end
-- Nested numbers in one list; true is 1.
function M.flat(given, into)
  into = into or {}
  if type(given) == "table" then
    for _, each in ipairs(given) do M.flat(each, into) end
  else
    into[#into + 1] = given == true and 1 or given or 0
  end
  return into
end
function M.near(found, expected, absolute, relative)
  assert(#found == #expected, #found .. " numbers, not " .. #expected)
  for index, one in ipairs(found) do
    local other = expected[index]
    local is_near = one == other or (one ~= one and other ~= other)
      or math.abs(one - other) <= math.max(absolute, relative * math.abs(other))
    assert(is_near, "element " .. index .. " is " .. tostring(one) .. ", not " .. tostring(other))
  end
end
-- Asserts that a call fails as a case says, with a part in its message.
function M.fails(case, part, run, ...)
  local is_ok, problem = pcall(run, ...)
  assert(not is_ok, "nothing failed")
  assert(distag.is_error(problem), tostring(problem))
  local text = tostring(problem)
  for _, each in ipairs(case.message_has or {}) do assert(text:find(each, 1, true), text) end
  assert(text:find(part, 1, true), text)
  local named = { status = problem.code, origin_rank = problem.origin_rank, may_have_run = problem.may_have_run }
  for name, found in pairs(named) do
    if case[name] ~= nil then assert(found == case[name], name .. " " .. tostring(found) .. ": " .. text) end
  end
  assert(case.origin_rank == nil or problem.origin_rank ~= nil, text)
  return problem
end

-- ---- groups ----

local groups = 0
function M.create(functions, names)
  groups = groups + 1
  local workers, job = {}, "lua" .. groups
  for index, name in ipairs(names or { "a", "b" }) do
    workers[index] = distag.worker({ name = name, rank = index - 1, world_size = #(names or { "a", "b" }), job = job,
                                     rendezvous = "inproc://" .. job, functions = functions })
  end
  return workers
end
local function all(workers, name)
  local futures = {}
  for index, each in ipairs(workers) do futures[index] = each[name](each, 120) end
  return distag.wait_all(futures)
end
function M.start(workers) all(workers, "start_async") end
-- Runs a case with workers that are started, and shuts them down side by side.
function M.group(functions, run, names)
  local workers = M.create(functions, names)
  M.start(workers)
  local is_ok, problem = pcall(run, unpack(workers))
  all(workers, "shutdown_async")
  for _, each in ipairs(workers) do each:close() end
  if not is_ok then error(problem, 0) end
end
return M
