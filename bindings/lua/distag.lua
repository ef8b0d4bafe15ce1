-- distag for LuaJIT: workers call each other's functions, and one backward pass runs through all processes that took
-- part. Nothing of Lua is called back by C: calls and futures come as events, which distag.poll gives to coroutines.
local ffi = require("ffi")
local bit = require("bit")
local jit = require("jit")
local registry = debug.getregistry()
if registry.distag then return registry.distag end -- required again: the types of C are there once in a state
local K = require("distag.constants")
local function declare(known, text) -- not again after a first require that found no library
  if not pcall(ffi.typeof, known) then ffi.cdef(text) end
end
declare("distag_error", require("distag.cdef"))
declare("distag_lua_tensor", [[
typedef struct distag_lua_tensor { distag_tensor *handle; double size; } distag_lua_tensor;
typedef struct distag_lua_value { distag_value *handle; } distag_lua_value;
typedef struct distag_lua_worker { distag_worker *handle; double number; } distag_lua_worker;
typedef struct distag_lua_future { distag_future *handle; double home; } distag_lua_future;
typedef struct distag_lua_context { distag_context *handle; distag_worker *worker; } distag_lua_context;
typedef struct distag_lua_gradients { distag_gradients *handle; } distag_lua_gradients;
typedef struct distag_lua_rref { distag_rref *handle; double home; } distag_lua_rref;
typedef struct distag_lua_optimizer { distag_optimizer *handle; int has_worker; } distag_lua_optimizer;
typedef struct { int fd; short events, revents; } distag_lua_pollfd;
int distag_lua_wait(distag_lua_pollfd *watched, unsigned long count, int milliseconds) __asm__("poll");
void *distag_lua_open(const char *path, int flags) __asm__("dlopen");
]])

-- A state that closes unloads its libraries before it runs the finalizers that need them, so this one stays mapped.
local RTLD_NOW, RTLD_NODELETE, PATH = 2, 0x1000, os.getenv("DISTAG_LIBRARY") or "libdistag.so.0"
local C = ffi.load(PATH)
ffi.C.distag_lua_open(PATH, RTLD_NOW + RTLD_NODELETE)
local M = { library = C, float32 = "float32", float64 = "float64", int64 = "int64", bool = "bool", FOREVER = -1 }
local DTYPES = { float32 = K.FLOAT32, float64 = K.FLOAT64, int64 = K.INT64, bool = K.BOOL }
local DTYPE_NAMES = { [K.FLOAT32] = "float32", [K.FLOAT64] = "float64", [K.INT64] = "int64", [K.BOOL] = "bool" }
local CTYPES = { [K.FLOAT32] = "float", [K.FLOAT64] = "double", [K.INT64] = "int64_t", [K.BOOL] = "uint8_t" }
M.null = setmetatable({}, { __tostring = function() return "null" end })

-- ---- errors: tables ----

local Error = {}
Error.__index = Error

local function failure(code, message, origin_rank, flags)
  local known = K.statuses[code] or K.statuses[code >= 1000 and 1000 or -1] or { name = "UNKNOWN", class = "other" }
  local may_have_run = bit.band(flags or 0, K.ERROR_MAY_HAVE_RUN) ~= 0
  return setmetatable({ code = code, name = known.name, class = known.class, message = message,
                        origin_rank = origin_rank, may_have_run = may_have_run }, Error)
end

-- An error of a function of yours: its code, 1000 or above, travels unchanged to the caller.
function M.error(message, code) return failure(tonumber(code) or 1000, message) end
function M.is_error(value) return getmetatable(value) == Error end
local function refuse(message, code) error(failure(code or K.E_INVALID_ARGUMENT, message), 0) end
-- The text of anything that was raised or given, also where its __tostring fails; numbers keep all of their digits.
local function said(problem)
  local is_ok, found = pcall(tostring, problem)
  if type(problem) == "number" and problem == problem and tonumber(found) ~= problem then
    return ("%.17g"):format(problem)
  end
  return is_ok and type(found) == "string" and found or "a " .. type(problem) .. " without a text"
end
Error.__tostring = function(self) return said(self.message) end
Error.__concat = function(a, b)
  return (M.is_error(a) and tostring(a) or a) .. (M.is_error(b) and tostring(b) or b)
end

-- Lua runs on one thread, and C never runs Lua in between. A finalizer, which may call, runs where memory is asked for:
-- nowhere from the call of C until all of err is read, so the reference to the text is made here. (A trace asks for
-- memory where it likes.)
local err = ffi.new("distag_error")
local err_message = err.message
local function fresh()
  err.struct_size, err.code, err.origin_rank, err.flags = ffi.sizeof(err), 0, -1, 0
  return err
end
local KINDS = { "tensor", "value", "worker", "future", "context", "gradients", "rref", "optimizer" }
local types = {}
-- What something is, for errors: its type, or its kind among the objects of distag.
local function kind_of(given)
  for _, kind in ipairs(type(given) == "cdata" and KINDS or {}) do
    if ffi.istype(types[kind], given) then return kind end
  end
  return type(given)
end
-- What C reads has to live until C has returned, and the collector takes what the code behind a call does not use. So
-- each object whose pointer goes to C is an argument behind the result: check(C.f(x.handle, fresh()), x). The first one
-- is that of the method: C says that it is NULL where it is closed.
local function told(status, owner, place)
  local rank, flags, message = err.origin_rank, err.flags, ffi.string(err_message)
  local kind = kind_of(owner)
  if status == K.E_INVALID_ARGUMENT and types[kind] and owner.handle == nil then
    message = "the " .. kind .. " is closed"
  end
  return failure(status, (place and place .. ": " or "") .. message, rank >= 0 and rank or nil, flags)
end
local function check(status, owner)
  if status ~= 0 then error(told(status, owner), 0) end
end
jit.off(told)

do
  local found, parts = ffi.string(C.distag_get_version()), {}
  for _, version in ipairs({ found, K.VERSION }) do
    local major, minor, patch = version:match("(%d+)%.(%d+)%.(%d+)")
    parts[#parts + 1] = major * 1000000 + minor * 1000 + patch
  end
  if parts[1] < parts[2] or C.distag_get_api(K.ABI_MAJOR) == nil then
    error("libdistag.so is version " .. found .. ", this module was made for " .. K.VERSION .. ": install that one", 0)
  end
end

local function used(result) return result end -- the same for a result that is no status

-- ---- handles: structs that release what they hold, once ----

local methods = {}
local scope -- the tensors of the innermost distag.scope
local alive, collected_at = 0, 0 -- bytes of tensors, of which the collector of Lua knows nothing

-- A finalizer of the user that fails does so in whatever asks for memory: C's result is kept where it was put until an
-- owner has it, and the collector finds that one.
local function hold(kind, places, index)
  local object = types[kind]()
  object.handle = places[index]
  return object
end
local function noted(kind, object)
  if kind == "tensor" then
    object.size = tonumber(C.distag_tensor_get_size(object.handle))
    alive = alive + object.size
    if alive > 67108864 and alive > 2 * collected_at then
      collectgarbage()
      collected_at = alive
    end
    if scope then scope[#scope + 1] = object end
  end
  return object
end
local function own(kind, places, index)
  local is_ok, object = pcall(hold, kind, places, index or 0)
  if not is_ok then
    for _ = 1, 100 do
      if pcall(hold, kind, places, index or 0) then break end
    end
    error(object, 0)
  end
  return noted(kind, object)
end
local function out(kind) return ffi.new("distag_" .. kind .. " *[1]") end
local function lent(kind, pointer)
  if pointer == nil then return nil end
  local retain, object = C[K.handles[kind].retain], types[kind]()
  object.handle = pointer
  retain(pointer) -- its result asks for memory, once it is retained
  return noted(kind, object)
end
-- The keys of a table. A loop of pairs that LuaJIT has compiled may go on for ever (that of Debian 12, where finalizers
-- run in between), so both loops in here are kept from its compiler.
local function keys_of(given)
  local found = {}
  for key in pairs(given) do found[#found + 1] = key end
  return found
end
jit.off(keys_of)
local function other_key(items, count)
  for key in pairs(items) do
    if type(key) ~= "number" or key < 1 or key > count or key ~= math.floor(key) then return key end
  end
end
jit.off(other_key)
-- The length of a list, which ends at its first nil. A table that has more than this list is refused, as that would get
-- lost.
local function length_of(what, items)
  local count = 0
  while rawget(items, count + 1) ~= nil do count = count + 1 end
  local other = other_key(items, count)
  if other ~= nil then
    refuse(what .. ": the table is a list of " .. count .. ", and has the key " .. said(other):sub(1, 100) .. " too")
  end
  return count
end
-- A kind with its article: "an rref".
local function an(kind) return ((kind:find("^[aeio]") or kind == "rref") and "an " or "a ") .. kind end
local function numeric(what, given)
  if type(given) ~= "number" or given ~= given then
    refuse(what .. ": a number is wanted, not " .. said(given) .. (type(given) == "string" and ", a string" or ""))
  end
  return given
end
local INT64, UINT64 = ffi.typeof("int64_t"), ffi.typeof("uint64_t")
local function is_integer_of_c(given) return ffi.istype(INT64, given) or ffi.istype(UINT64, given) end
-- A whole number of C, also as an int64_t, between two others.
local function whole(what, given, least, most)
  local is_int64 = ffi.istype(INT64, given) or ffi.istype(UINT64, given) and given <= 0x7fffffffffffffffULL
  if is_int64 and not least then return given end
  local number = is_integer_of_c(given) and tonumber(given) or numeric(what, given)
  if number ~= math.floor(number) or number < (least or number) or number > (most or number) then
    local range = least and " from " .. said(least) .. " to " .. said(most) or ""
    refuse(what .. ": a whole number" .. range .. " is wanted, not " .. said(given))
  end
  if number < -2 ^ 63 or number >= 2 ^ 63 then refuse(what .. ": " .. said(given) .. " does not fit int64") end
  return number
end
local function nanoseconds(seconds, what)
  if numeric(what, seconds) == M.FOREVER then return -1LL end
  if seconds < 0 then refuse(what .. ": seconds from 0 on, or distag.FOREVER, are wanted, not " .. said(seconds)) end
  return ffi.cast("int64_t", math.min(seconds * 1e9, 9e18))
end
-- A time among options, where 0 is the default: a time of 0 is the shortest one there.
local function limit(seconds, what)
  if seconds == nil then return 0LL end
  local found = nanoseconds(seconds, what)
  return found == 0 and 1LL or found
end
local function text(what, given)
  if type(given) ~= "string" then refuse(what .. ": a string is wanted, and " .. an(kind_of(given)) .. " is there") end
  if given:find("\0", 1, true) then refuse(what .. ": the text has a NUL character inside; send distag.bytes") end
  return given
end
-- A text that a function copies into a buffer, telling its whole length.
local function copied(copy, ...)
  local size, capacity, buffer = ffi.new("size_t[1]"), 0, nil
  local given, count = { ... }, select("#", ...)
  while true do
    given[count + 1], given[count + 2], given[count + 3], given[count + 4] = buffer, capacity, size, fresh()
    check(copy(unpack(given, 1, count + 4)))
    if size[0] < capacity then return ffi.string(buffer, size[0]) end
    capacity = tonumber(size[0]) + 256 -- it may have grown the next time
    buffer = ffi.new("char[?]", capacity)
  end
end
-- The numbers and texts of a struct that a function fills. What is lent by the struct does not keep it.
local function filled(name, fill, ...)
  local raw, found = ffi.new(name), {}
  raw.struct_size = ffi.sizeof(raw)
  local given, count = { ... }, select("#", ...)
  given[count + 1], given[count + 2] = raw, fresh()
  check(fill(unpack(given, 1, count + 2)))
  for _, member in ipairs(K.layouts[name].members) do
    local content, number = raw[member[1]], tonumber(raw[member[1]])
    if number == nil then content = ffi.string(content) elseif number <= 9007199254740991 then content = number end
    found[member[1]] = content
  end
  found.struct_size = nil
  return found
end
-- The handle for a function that answers 0 or NULL to a closed object, and has no error for it.
local function open(self, kind)
  if self.handle == nil then refuse("the " .. kind .. " is closed") end
  return self.handle
end
local function handle_of(kind, object, what)
  if not ffi.istype(types[kind], object) then
    refuse(what .. ": " .. an(kind) .. " is wanted, and " .. an(kind_of(object)) .. " is there")
  end
  if object.handle == nil then refuse(what .. ": the " .. kind .. " is closed") end -- NULL often means to leave it out
  return object.handle
end

local function callable(what, run)
  local metatable = getmetatable(run)
  if type(run) ~= "function" and not (type(metatable) == "table" and metatable.__call) then
    refuse(what .. ", and " .. an(kind_of(run)) .. " is there")
  end
  return run
end

-- Refuses an option with another name, which most often has a typing error.
local function only(what, options, names)
  if type(options) ~= "table" then
    refuse(what .. ": a table of options is wanted, and " .. an(kind_of(options)) .. " is there")
  end
  for _, name in ipairs(keys_of(options)) do
    if not names[name] then refuse(what .. ": there is no option " .. said(name)) end
  end
end

for _, kind in ipairs(KINDS) do
  local release = C[K.handles[kind].release]
  local class = {}
  methods[kind] = class
  -- Lets go at once; a second time does nothing.
  function class:close()
    if self.handle == nil then return end
    if kind == "tensor" then alive = alive - self.size end
    local handle = self.handle
    self.handle = nil
    release(handle)
  end
end
M.Tensor, M.Worker, M.Context = methods.tensor, methods.worker, methods.context

-- ---- values ----

local Bytes, Map, Float = { __tostring = function(self) return self.data end }, {}, {}
local function of_type(name, what, given)
  if type(given) ~= name then
    refuse(what .. ": " .. an(name) .. " is wanted, and " .. an(kind_of(given)) .. " is there")
  end
  return given
end
-- 0 counts as true in Lua, so that an answer yes or no is a boolean.
local function flag(what, given)
  if given == nil then return 0 end
  return of_type("boolean", what, given) and 1 or 0
end
-- A text that may hold NUL. Bytes arrive as the same: tostring(bytes) and bytes.data are the text.
function M.bytes(data) return setmetatable({ data = of_type("string", "bytes", data) }, Bytes) end
-- An empty table is a list otherwise.
function M.map(entries) return setmetatable(of_type("table", "map", entries or {}), Map) end
-- 1 is an integer otherwise.
function M.float(number) return setmetatable({ number = of_type("number", "float", number) }, Float) end

local to_value
local function list_value(items, path, depth, place)
  local count = length_of(path, items)
  local handles, kept = ffi.new("distag_value *[?]", math.max(count, 1)), {}
  for index = 1, count do
    kept[index] = to_value(items[index], path .. "[" .. index - 1 .. "]", depth + 1)
    handles[index - 1] = kept[index].handle
  end
  return C.distag_value_create_list(handles, count, place, fresh()), kept
end
local function map_value(entries, path, depth, place)
  local names, kept = keys_of(entries), {}
  for _, key in ipairs(names) do
    if type(key) ~= "string" then refuse(path .. ": a key is " .. an(type(key)) .. ": maps have texts as keys") end
  end
  local keys = ffi.new("const char *[?]", math.max(#names, 1))
  local handles = ffi.new("distag_value *[?]", math.max(#names, 1))
  for index, key in ipairs(names) do
    kept[index] = to_value(entries[key], path .. "." .. key, depth + 1)
    keys[index - 1], handles[index - 1] = text(path .. "." .. key, key), kept[index].handle
  end
  return C.distag_value_create_map(keys, handles, #names, place, fresh()), { kept, names }
end
local function number_value(given, place)
  local is_whole = given == math.floor(given) and math.abs(given) <= 9007199254740991
  is_whole = is_whole and not (given == 0 and 1 / given < 0)
  if is_whole then return C.distag_value_create_int64(given, place, fresh()) end
  return C.distag_value_create_float64(given, place, fresh())
end
local NO_VALUE = " is no value: send tensors, rrefs, numbers, texts, tables"
local function cdata_value(given, path, place)
  if ffi.istype(types.value, given) then return given end
  local is_tensor = ffi.istype(types.tensor, given)
  if is_tensor or ffi.istype(types.rref, given) then
    if given.handle == nil then refuse(path .. ": it is closed") end
    return used(lent("value", (is_tensor and C.distag_tensor_as_value or C.distag_rref_as_value)(given.handle)), given)
  end
  if ffi.istype("uint64_t", given) and given > 0x7fffffffffffffffULL then
    refuse(path .. ": " .. tostring(given) .. " does not fit int64")
  end
  if is_integer_of_c(given) then
    check(C.distag_value_create_int64(given, place, fresh()))
    return own("value", place)
  end
  return refuse(path .. ": " .. an(kind_of(given)) .. NO_VALUE)
end
function to_value(given, path, depth)
  local place, kind, status, _ = out("value"), type(given), nil, nil
  if given == nil or given == M.null then status = C.distag_value_create_null(place, fresh())
  elseif kind == "boolean" then status = C.distag_value_create_bool(given and 1 or 0, place, fresh())
  elseif kind == "number" then status = number_value(given, place)
  elseif kind == "string" then status = C.distag_value_create_text(text(path, given), place, fresh())
  elseif kind == "cdata" then return cdata_value(given, path, place)
  elseif kind ~= "table" then refuse(path .. ": " .. an(kind) .. NO_VALUE)
  elseif getmetatable(given) == Bytes then status = C.distag_value_create_bytes(given.data, #given.data, place, fresh())
  elseif getmetatable(given) == Float then status = C.distag_value_create_float64(given.number, place, fresh())
  elseif depth > 16 then refuse(path:sub(1, 100) .. ": nested deeper than 16, or in a circle")
  elseif getmetatable(given) ~= Map and (#given > 0 or next(given) == nil) then
    status, _ = list_value(given, path, depth, place)
  else
    status, _ = map_value(given, path, depth, place)
  end
  if status ~= 0 then error(told(status, nil, path), 0) end
  return own("value", place)
end

local from_value
local readers = {
  [K.VALUE_NULL] = function() return M.null end,
  [K.VALUE_BOOL] = function(value)
    local found = ffi.new("int32_t[1]")
    check(C.distag_value_get_bool(value, found, fresh()))
    return found[0] ~= 0
  end,
  [K.VALUE_INT64] = function(value)
    local found = ffi.new("int64_t[1]")
    check(C.distag_value_get_int64(value, found, fresh()))
    local rounded = tonumber(found[0])
    return math.abs(rounded) <= 9007199254740991 and rounded or found[0]
  end,
  [K.VALUE_FLOAT64] = function(value)
    local found = ffi.new("double[1]")
    check(C.distag_value_get_float64(value, found, fresh()))
    return found[0]
  end,
  [K.VALUE_TEXT] = function(value)
    local found = ffi.new("const char *[1]")
    check(C.distag_value_get_text(value, found, fresh()))
    return ffi.string(found[0])
  end,
  [K.VALUE_BYTES] = function(value)
    local found, size = ffi.new("const void *[1]"), ffi.new("size_t[1]")
    check(C.distag_value_get_bytes(value, found, size, fresh()))
    return M.bytes(ffi.string(found[0], size[0]))
  end,
  [K.VALUE_TENSOR] = function(value)
    local found = out("tensor")
    check(C.distag_value_get_tensor(value, found, fresh()))
    return lent("tensor", found[0])
  end,
  [K.VALUE_RREF] = function(value)
    local found = out("rref")
    check(C.distag_value_get_rref(value, found, fresh()))
    return lent("rref", found[0])
  end,
  [K.VALUE_LIST] = function(value)
    local items = {}
    for index = 1, tonumber(C.distag_value_get_count(value)) do
      items[index] = from_value(C.distag_value_get_item(value, index - 1))
    end
    return items
  end,
  [K.VALUE_MAP] = function(value)
    local entries = M.map()
    for index = 0, tonumber(C.distag_value_get_count(value)) - 1 do
      entries[ffi.string(C.distag_value_get_key(value, index))] = from_value(C.distag_value_get_item(value, index))
    end
    return entries
  end,
}
function from_value(value)
  local read = readers[tonumber(C.distag_value_get_kind(value))]
  if read then return read(value) end
  return lent("value", value) -- of a kind of its own
end
local function answer_of(value)
  local found = from_value(value)
  if found == M.null then return nil end
  return found
end

-- ---- tensors ----

local function place_of(what, index) return index and what .. "[" .. index .. "]" or what end
-- Most integers: for these no place is made that an error would name.
local function is_plain(given)
  return type(given) == "number" and given == math.floor(given) and math.abs(given) <= 9007199254740991
end
-- The elements of nested tables, and their shape. `what` and `index` (from 0) say where in the argument it stands.
local function flatten(what, index, given, dim, shape, items, code)
  local kind = type(given)
  if kind ~= "table" then
    local is_number = kind == "number" or kind == "boolean" or is_integer_of_c(given)
    if not is_number or #shape ~= dim - 1 then
      local wanted = #shape ~= dim - 1 and "table of " .. shape[dim] or "number"
      refuse(place_of(what, index) .. ": " .. an(kind_of(given)) .. " stands where a " .. wanted .. " is wanted")
    end
    if code == K.INT64 and kind ~= "boolean" and not is_plain(given) then
      whole(place_of(what, index) .. ": of int64", given)
    end
    if code == K.BOOL and kind ~= "boolean" then whole(place_of(what, index) .. ": of bool", given, 0, 1) end
    items[#items + 1] = given == true and 1 or given or 0
    return
  end
  what = place_of(what, index)
  if dim > 64 then refuse(what:sub(1, 100) .. ": nested deeper than 64, or in a circle") end
  local count = length_of(what, given)
  shape[dim] = shape[dim] or (#items == 0 and count) or refuse(what .. ": a table stands where a number is wanted")
  if count ~= shape[dim] then refuse(what .. ": a table of " .. count .. " stands beside one of " .. shape[dim]) end
  for each = 1, count do flatten(what, each - 1, given[each], dim + 1, shape, items, code) end
end
local function ints(what, given)
  if type(given) ~= "table" then return ffi.new("int64_t[1]", whole(what, given)), 1 end
  local count = length_of(what, given)
  local found = ffi.new("int64_t[?]", math.max(count, 1))
  for index = 1, count do
    local item = given[index]
    found[index - 1] = is_plain(item) and item or whole(place_of(what, index - 1), item)
  end
  return found, count
end

-- Copies a number, or nested tables of numbers, into a new tensor; dtype is "float32" unless it is given. Numbers are
-- rounded to it as Python and torch do: one beyond its range is infinite there.
function M.tensor(given, dtype)
  local code = DTYPES[dtype or "float32"] or refuse("tensor: no dtype " .. said(dtype))
  local shape, items, place = {}, {}, out("tensor")
  flatten("tensor", nil, given, 1, shape, items, code)
  local data = ffi.new(CTYPES[code] .. "[?]", math.max(#items, 1), items)
  local sizes, ndim = ints("tensor", shape)
  check(C.distag_tensor_create(data, #items * ffi.sizeof(CTYPES[code]), code, sizes, ndim, place, fresh()))
  return own("tensor", place)
end

local tensor = methods.tensor
function tensor:dtype()
  local code = used(C.distag_tensor_get_dtype(open(self, "tensor")), self)
  return DTYPE_NAMES[code]
end
function tensor:id() return used(C.distag_tensor_get_id(open(self, "tensor")), self) end
function tensor:count() return tonumber(used(C.distag_tensor_get_count(open(self, "tensor")), self)) end
function tensor:shape()
  local sizes, found = C.distag_tensor_get_shape(open(self, "tensor")), {}
  for dim = 1, tonumber(C.distag_tensor_get_ndim(self.handle)) do found[dim] = tonumber(sizes[dim - 1]) end
  return used(found, self)
end
function tensor:requires_grad() return used(C.distag_tensor_get_requires_grad(open(self, "tensor")), self) == 1 end
-- Asks for gradients, and gives the same tensor.
function tensor:with_grad()
  check(C.distag_tensor_set_requires_grad(self.handle, 1, fresh()), self)
  return self
end
-- The number of a tensor of one; an integer beyond 2^53 is an int64_t.
function tensor:item()
  local found = ffi.new("double[1]")
  check(C.distag_tensor_get_item(self.handle, found, fresh()), self)
  return math.abs(found[0]) > 9007199254740991 and self:dtype() == "int64" and self:numbers()[1] or found[0]
end
-- The elements, row-major, in one table; integers beyond 2^53 are int64_t, and bools are 0 or 1.
function tensor:numbers()
  local code, found = used(C.distag_tensor_get_dtype(self.handle), self), {}
  local data = ffi.new((CTYPES[code] or "uint8_t") .. "[?]", math.max(self:count(), 1))
  check(C.distag_tensor_copy_data(self.handle, data, ffi.sizeof(data), fresh()), self)
  for index = 1, self:count() do
    local rounded = tonumber(data[index - 1])
    local is_exact = code ~= K.INT64 or math.abs(rounded) <= 9007199254740991
    found[index] = is_exact and rounded or data[index - 1]
  end
  return found
end
-- The elements of this moment as a pointer of C, read-only, row-major, and their count: nothing is copied where the
-- tensor is contiguous. They stay as they are, whatever is written, for as long as this pointer is held.
function tensor:view()
  local place = out("tensor")
  check(C.distag_tensor_create_snapshot(self.handle, place, fresh()), self)
  local info = ffi.new("distag_tensor_info", { struct_size = ffi.sizeof("distag_tensor_info") })
  check(C.distag_tensor_get_info(place[0], info, fresh()))
  if bit.band(info.flags, K.TENSOR_CONTIGUOUS) == 0 then
    C.distag_tensor_release(place[0])
    check(C.distag_clone(self.handle, place, fresh()), self)
  end
  local snapshot, count = place[0], tonumber(C.distag_tensor_get_count(place[0]))
  local first = ffi.cast("const " .. (CTYPES[info.dtype] or "uint8_t") .. " *", C.distag_tensor_get_data(snapshot))
  first = ffi.gc(first, function() C.distag_tensor_release(snapshot) end)
  if first == nil and count > 0 then refuse("view: the elements are not on this worker", K.E_INVALID_STATE) end
  return first, count
end
function tensor:snapshot()
  local place = out("tensor")
  check(C.distag_tensor_create_snapshot(self.handle, place, fresh()), self)
  return own("tensor", place)
end
-- Sets the values in place, unrecorded, to those of another tensor, cast and broadcast.
function tensor:assign(source)
  check(C.distag_tensor_assign(self.handle, handle_of("tensor", source, "assign"), fresh()), self, source)
end
-- Sets the values in place, unrecorded, to numbers, nested as the tensor is.
function tensor:write(given)
  local code, shape, items = used(C.distag_tensor_get_dtype(self.handle), self), {}, {}
  flatten("write", nil, given, 1, shape, items, code)
  local wanted = table.concat(self:shape(), ", ")
  if table.concat(shape, ", ") ~= wanted then
    refuse("write: numbers of [" .. table.concat(shape, ", ") .. "] for a tensor of [" .. wanted .. "]")
  end
  local ctype = CTYPES[code] or "uint8_t" -- of a closed one, which C refuses
  local data = ffi.new(ctype .. "[?]", math.max(#items, 1), items)
  check(C.distag_tensor_write(self.handle, data, #items * ffi.sizeof(ctype), fresh()), self)
end
-- Adds scale times another tensor in place, unrecorded.
function tensor:add_scaled(source, scale)
  local other = handle_of("tensor", source, "add_scaled")
  check(C.distag_tensor_add_scaled(self.handle, other, numeric("the scale", scale), fresh()), self, source)
end
local function not_here()
  local cure = "use built-in ops, or a function that a worker in another language offers"
  refuse("Lua cannot be called back: " .. cure, K.E_UNSUPPORTED)
end
tensor.add_hook, M.apply_custom, M.object = not_here, not_here, not_here

local function attribute(kind, given, name, place)
  if kind == "int64" then return C.distag_value_create_int64(whole(name, given), place, fresh()) end
  if kind == "float64" then
    local number = is_integer_of_c(given) and tonumber(given) or of_type("number", name, given)
    return C.distag_value_create_float64(number, place, fresh())
  end
  if kind == "bool" then
    return C.distag_value_create_bool(of_type("boolean", name, given) and 1 or 0, place, fresh())
  end
  if kind == "int64[]" then
    local items, count = ints(name, given)
    return C.distag_value_create_int64_list(items, count, place, fresh())
  end
  return C.distag_value_create_text(text(name, given), place, fresh())
end
local function attributes_of(op, given)
  local count, place = #op.attributes, out("value")
  local keys, handles, kept = ffi.new("const char *[?]", count + 1), ffi.new("distag_value *[?]", count + 1), {}
  for index, each in ipairs(op.attributes) do
    local content, at = given[index], #kept
    if content == nil then content = each.default end
    if content == nil and not each.is_left_out then refuse(op.name .. ": " .. each.name .. " is missing") end
    if type(content) == "string" and content:sub(1, 1) == "=" then content = given[1] end -- that of the first one
    if content ~= nil then
      local status = attribute(each.type, content, op.name .. ": " .. each.name, place)
      if status ~= 0 then error(told(status, nil, op.name .. ": " .. each.name), 0) end
      kept[at + 1] = own("value", place)
      keys[at], handles[at] = each.name, kept[at + 1].handle
    end
  end
  check(C.distag_value_create_map(keys, handles, #kept, place, fresh()), kept)
  return own("value", place)
end
local function apply(op, kept, inputs, count, given)
  local attributes = attributes_of(op, given)
  local outputs = op.outputs == "many" and (type(given[1]) == "table" and #given[1] or 1) or op.outputs
  local places = ffi.new("distag_tensor *[?]", math.max(outputs, 1))
  local found = {}
  check(C.distag_apply(op.name, inputs, count, attributes.handle, 0, places, outputs, fresh()), attributes, kept)
  local is_ok, problem = true, nil
  for index = 1, outputs do
    local is_own, output = pcall(own, "tensor", places, index - 1)
    if is_own then found[index] = output else is_ok, problem = false, output end
  end
  if not is_ok then error(problem, 0) end
  return op.outputs == 1 and found[1] or found
end

-- Each op is a function; those whose first input is a tensor are methods. Inputs come first, then attributes in the
-- order of the signature (see distag/ops.lua); nil leaves one out.
local function op_function(op)
  local first, fast = op.inputs[1], op.c_function and #op.attributes == 0 and C[op.c_function]
  local what = op.name .. ": an input"
  if fast and #op.inputs == 1 then
    return function(x)
      local place = out("tensor")
      check(fast(handle_of("tensor", x, what), place, fresh()), x)
      return own("tensor", place)
    end
  end
  if fast and #op.inputs == 2 then
    return function(a, b)
      local place = out("tensor")
      check(fast(handle_of("tensor", a, what), handle_of("tensor", b, what), place, fresh()), a, b)
      return own("tensor", place)
    end
  end
  local function many(items, ...)
    if type(items) ~= "table" then refuse(what .. ": a table is wanted, and " .. an(kind_of(items)) .. " is there") end
    local total = length_of(what, items)
    local handles = ffi.new("distag_tensor *[?]", math.max(total, 1))
    for index = 1, total do handles[index - 1] = handle_of("tensor", items[index], what) end
    return apply(op, items, handles, total, { ... })
  end
  if first and first.kind == "many" then return many end
  return function(...)
    local count, handles = #op.inputs, ffi.new("distag_tensor *[?]", math.max(#op.inputs, 1))
    for index = 1, count do
      local given = select(index, ...)
      if given ~= nil or op.inputs[index].kind ~= "optional" then
        handles[index - 1] = handle_of("tensor", given, what)
      end
    end
    return apply(op, { ... }, handles, count, { select(count + 1, ...) })
  end
end
M.ops = {}
for _, op in ipairs(require("distag.ops")) do
  M.ops[op.name] = op_function(op)
  if M[op.name] == nil then M[op.name] = M.ops[op.name] end
  if op.inputs[1] and op.inputs[1].kind == "one" then tensor[op.name] = M.ops[op.name] end
end

-- ---- events, futures, coroutines ----

local workers, waiting, tags = {}, {}, 0 -- those that serve, held until they leave; what an event of a tag means
local offered, numbered = {}, 0 -- the tags of the functions of each worker, by its number
local function serving(name, content)
  for _, each in ipairs(workers) do
    if each[name] == content then return each end
  end
end
local function next_tag(meaning) -- of an event; of a call, with its function
  tags = tags + 1
  waiting[tags] = meaning
  return tags
end

local current -- the call that the running coroutine answers
local spawned = setmetatable({}, { __mode = "k" }) -- coroutines of distag, with their calls
local outcomes = setmetatable({}, { __mode = "k" }) -- what those of distag.spawn gave, or raised
local scopes = setmetatable({}, { __mode = "k" }) -- those that a coroutine is in while it waits
local WAITS = {} -- yielded where something wakes the coroutine; after any other yield it is in line for the next poll
local line, first, last = {}, 1, 0
local function resume(routine, ...)
  if coroutine.status(routine) ~= "suspended" then return end
  local before, outer = current, scope
  current, scope = spawned[routine], scopes[routine]
  local _, yielded = coroutine.resume(routine, ...)
  current, scope, scopes[routine] = before, outer, scope
  if yielded ~= WAITS and coroutine.status(routine) == "suspended" then
    last = last + 1
    line[last] = routine
  end
end
-- Whether a coroutine answers a call of a worker that has left: it is not gone on with, and left to the collector.
local function is_left(routine)
  local call = spawned[routine]
  return type(call) == "table" and not outcomes[routine] and not serving("number", -call.worker.number)
end
-- Goes on with the coroutines that are in line now, and returns their count. One of them may poll meanwhile.
local function take_turns()
  local stop, done = last, 0
  while first <= stop do
    local routine = line[first]
    line[first], first = nil, first + 1
    if routine and not is_left(routine) then
      done = done + 1
      resume(routine)
    end
  end
  return done
end
-- A future posts one event, which wakes all that wait for it. By its tag: the number of the worker to which it comes,
-- the address of the future, and the coroutines, as a list and as keys.
local posted = {}
local tag_at = {} -- of the event that a future has posted, by its address
local function take_posted(tag)
  local wake = posted[tag]
  posted[tag], tag_at[wake.address] = nil, nil
  return wake
end
-- A worker that is gone gives no event: the coroutines that wait for one look at their futures.
local function forget(self)
  for index = #workers, 1, -1 do
    if workers[index].number == self.number then table.remove(workers, index) end
  end
  for index = first, last do
    if line[index] and is_left(line[index]) then line[index] = false end
  end
  for _, tag in ipairs(keys_of(posted)) do
    if posted[tag] and posted[tag].worker == self.number then -- else what was woken before has taken it
      for _, each in ipairs(take_posted(tag)) do resume(each) end
    end
  end
end
-- Runs a function as a coroutine, in which waits let others run. What it raises is for distag.join; it is written to
-- stderr where none has joined yet.
function M.spawn(run, ...)
  callable("spawn: a function is wanted", run)
  local outcome = { joined = {} }
  local function keep(is_ok, ...)
    outcome.is_ok, outcome.count, outcome.is_over = is_ok, select("#", ...), true
    for index = 1, outcome.count do outcome[index] = (select(index, ...)) end
    if not is_ok and not outcome.is_joined then io.stderr:write("distag: in a coroutine: ", outcome.trace, "\n") end
    for _, each in ipairs(outcome.joined) do resume(each) end
  end
  local routine = coroutine.create(function(...)
    keep(xpcall(run, function(problem)
      outcome.trace = debug.traceback(said(problem), 2)
      return problem
    end, ...))
  end)
  spawned[routine], outcomes[routine] = current or true, outcome
  resume(routine, ...)
  return routine
end
-- Waits for a coroutine of distag.spawn, and gives what it gave, or raises what it raised.
function M.join(routine)
  local outcome = outcomes[routine] or refuse("join: a coroutine of distag.spawn is wanted, not " .. said(routine))
  local routine_here = coroutine.running()
  if routine == routine_here then refuse("join: a coroutine would wait for itself") end
  outcome.is_joined = true
  if routine_here and spawned[routine_here] and not outcome.is_over then
    outcome.joined[#outcome.joined + 1] = routine_here
    coroutine.yield(WAITS)
  end
  while not outcome.is_over do M.poll(0.02) end
  if not outcome.is_ok then error(outcome[1], 0) end
  return unpack(outcome, 1, outcome.count)
end
-- The call that a function answers: name (of the function), caller, worker, context, traceparent (if the caller gave
-- one), call:is_cancelled() and call:time_left().
function M.current_call() return type(current) == "table" and current or nil end

local Call = {}
Call.__index = Call
-- Whether no caller waits any more, since it has cancelled, is lost, or has its answer.
function Call:is_cancelled()
  return self.invocation == nil or C.distag_invocation_is_cancelled(self.invocation) == 1
end
-- The seconds until the deadline of the call; nil where it has none, and 0 once it is answered.
function Call:time_left()
  local left = self.invocation and C.distag_invocation_get_time_left(self.invocation) or 0LL
  if left >= 0 then return tonumber(left) / 1e9 end
end
local function finish(invocation, is_ok, result)
  if is_ok then
    is_ok, result = pcall(to_value, result, "answer", 1)
    if is_ok then return check(C.distag_invocation_finish(invocation, result.handle, nil, fresh()), result) end
  end
  local failed = ffi.new("distag_error", { struct_size = ffi.sizeof("distag_error") })
  local inner = type(result) == "table" and rawget(result, "message") -- of a table that is no error of distag
  local shown = type(inner) == "string" and not getmetatable(result) and inner or said(result)
  local known = M.is_error(result) and result or failure(1000, "error: " .. shown)
  local message, code = said(known.message):gsub("%z", "\239\191\189"), tonumber(known.code)
  local is_code = code and code == math.floor(code) and code > 0 and code < 2147483648
  C.distag_error_set(failed, is_code and code or 1000, message)
  failed.origin_rank = tonumber(known.origin_rank) or -1
  check(C.distag_invocation_finish(invocation, nil, failed, fresh()))
end
local function serve(run, invocation, number)
  local context = C.distag_invocation_get_context(invocation)
  local call = setmetatable({ caller = ffi.string(C.distag_invocation_get_caller(invocation)) }, Call)
  call.name = ffi.string(C.distag_invocation_get_function(invocation))
  local traceparent = C.distag_invocation_get_traceparent(invocation)
  call.traceparent = traceparent ~= nil and ffi.string(traceparent) or nil
  call.invocation, call.context = invocation, lent("context", context)
  call.worker = lent("worker", C.distag_invocation_get_worker(invocation))
  call.worker.number = -number -- a further handle, which the collector takes without a shutdown
  if call.context then
    call.context.worker = call.worker.handle
    C.distag_worker_retain(call.worker.handle) -- the context lets go of it
  end
  local count = tonumber(C.distag_invocation_get_arg_count(invocation))
  local routine = coroutine.create(function()
    local arguments = {}
    local is_ok, result = pcall(function()
      for index = 1, count do arguments[index] = answer_of(C.distag_invocation_get_arg(invocation, index - 1)) end
      return run(unpack(arguments, 1, count))
    end)
    call.invocation = nil
    pcall(finish, invocation, is_ok, result) -- after a shutdown no caller waits for it
  end)
  spawned[routine] = call
  resume(routine)
end

-- Takes one event of a worker; whether there was one.
local function take(from, timeout_ns)
  if from.handle == nil then return false end -- closed by what was taken before
  local event = ffi.new("distag_event") -- of its own: a finalizer may take others before this one is looked at
  event.struct_size = ffi.sizeof(event)
  local status = C.distag_worker_take_event(from.handle, timeout_ns, event, fresh())
  if status == K.E_INVALID_STATE then forget(from) end -- it has left
  if status == K.E_DEADLINE or status == K.E_INVALID_STATE then return false end
  check(status, from)
  local tag = tonumber(event.tag)
  if event.kind == K.EVENT_CALL then
    serve(waiting[tag], event.invocation, from.number)
  else
    local wake = take_posted(tag)
    C.distag_future_release(event.future)
    for _, each in ipairs(wake) do resume(each) end -- outside of coroutines the loop of an await goes on
  end
  return true
end
local function take_all(from)
  local done = 0
  for _, each in ipairs(from) do
    while take(each, 0LL) do done = done + 1 end
  end
  return done
end
-- Takes the events of all workers of this program in turn, goes on with the coroutines that have yielded, and returns
-- the count of both; waits for an event at most that long, and a millisecond where a coroutine has yielded.
function M.poll(seconds)
  local all, longest = { unpack(workers) }, numeric("seconds", seconds or 0) -- some may leave meanwhile
  local turns = take_turns()
  local done, slice = take_all(all), math.min(longest, turns > 0 and 0.001 or 0.02)
  if done > 0 or slice <= 0 or #workers < #all then return turns + done end
  if #all == 1 then return turns + (take(all[1], nanoseconds(slice)) and 1 or 0) end
  local watched = ffi.new("distag_lua_pollfd[?]", math.max(#all, 1))
  for index, each in ipairs(all) do
    watched[index - 1].fd, watched[index - 1].events = C.distag_worker_get_fd(each.handle), 1 -- POLLIN
  end
  ffi.C.distag_lua_wait(watched, #all, math.ceil(slice * 1000))
  return turns + take_all(all)
end

local future = methods.future
function future:is_done()
  return used(C.distag_future_poll(open(self, "future")), self) == 1
end
function future:cancel() used(C.distag_future_cancel(open(self, "future")), self) end
-- Has an event come to the worker of a future, which wakes this coroutine too (nil: none). A future that came with a
-- value may be of any worker that serves. Gives whether the event is still to come: a finalizer may take it meanwhile.
local function post(self, routine)
  local address = tonumber(ffi.cast("uintptr_t", self.handle))
  local tag = tag_at[address] or next_tag()
  local wake = posted[tag] or { address = address }
  if routine and not wake[routine] then wake[routine], wake[#wake + 1] = true, routine end
  if posted[tag] then return true end
  posted[tag], tag_at[address] = wake, tag
  for _, each in ipairs(workers) do
    wake.worker = each.number
    if (self.home == 0 or self.home == each.number)
      and used(C.distag_future_post(self.handle, each.handle, tag, fresh()), self, each) == 0 then
      return posted[tag] == wake
    end
  end
  if posted[tag] then take_posted(tag) end
  return false
end
-- Not compiled: failures come by futures, and each shall have its own text whatever a finalizer calls meanwhile.
local function lent_value(self)
  local place = out("value")
  local status = C.distag_future_get_value(self.handle, place, fresh())
  if status ~= 0 then error(told(status, self), 0) end
  return used(place[0], self)
end
jit.off(lent_value)
local function wait_for(self)
  local routine = coroutine.running()
  local is_ours = routine and spawned[routine]
  while not self:is_done() and post(self, is_ours and routine or nil) and is_ours do coroutine.yield(WAITS) end
  while not self:is_done() do
    if M.poll(0.02) == 0 and #workers == 0 then check(C.distag_future_wait(self.handle, -1LL, fresh()), self) end
  end
end
-- Waits, and gives the value: in a coroutine of distag others run meanwhile, elsewhere events are taken.
function future:await()
  wait_for(self)
  return used(answer_of(lent_value(self)), self)
end
local function number_of(handle)
  local found = serving("handle", handle)
  return found and found.number or 0
end
local function made(place, handle)
  local object = own("future", place)
  object.home = number_of(handle)
  return object
end
-- Waits for all, and gives their values in a table.
function M.wait_all(futures)
  local found, count = {}, length_of("wait_all", of_type("table", "wait_all", futures))
  for index = 1, count do handle_of("future", futures[index], "wait_all[" .. index - 1 .. "]") end
  for index = 1, count do found[index] = futures[index]:await() end
  return found
end

-- ---- workers and calls ----

-- A worker; options are those of the header: name, rank, world_size, rendezvous, job, bind, group_key, by default from
-- the environment, as is socket_engine ("zmq" or "zmtp"); call_timeout and lease in seconds. functions has what it
-- offers, by name.
local WORKER = { name = true, rank = true, world_size = true, rendezvous = true, job = true, bind = true,
                 advertise = true, group_key = true, functions = true, call_timeout = true, lease = true,
                 max_in_flight_bytes = true, max_message_bytes = true, socket_engine = true }
local ENGINES = { zmq = K.SOCKET_ENGINE_ZMQ, zmtp = K.SOCKET_ENGINE_ZMTP }
local INT32_MAX, EXACT = 2147483647, 9007199254740991
function M.worker(options)
  only("worker", options, WORKER)
  local raw = ffi.new("distag_worker_options") -- the texts are those of options, which outlives it
  raw.struct_size, raw.executor = ffi.sizeof(raw), K.EXECUTOR_HOST
  raw.rank = whole("rank", options.rank or 0, -1, INT32_MAX)
  raw.world_size = whole("world_size", options.world_size or 0, -1, INT32_MAX)
  raw.call_timeout_ns = limit(options.call_timeout, "call_timeout")
  raw.lease_ns = limit(options.lease, "lease")
  raw.max_in_flight_bytes = whole("max_in_flight_bytes", options.max_in_flight_bytes or 0, 0, EXACT)
  raw.max_message_bytes = whole("max_message_bytes", options.max_message_bytes or 0, 0, EXACT)
  for _, name in ipairs({ "name", "rendezvous", "job", "bind", "advertise" }) do
    if options[name] then raw[name] = text(name, options[name]) end
  end
  if options.socket_engine ~= nil then
    local given = options.socket_engine
    raw.socket_engine = ENGINES[given] or
                            refuse('worker: socket_engine is "zmq" or "zmtp", and not "' .. said(given) .. '"')
  end
  local security = ffi.new("distag_security_options", { struct_size = ffi.sizeof("distag_security_options") })
  if options.group_key then security.group_key, raw.security = text("group_key", options.group_key), security end
  local place, functions = out("worker"), of_type("table", "functions", options.functions or {})
  check(C.distag_worker_create(raw, place, fresh()), options, security)
  local worker = own("worker", place)
  numbered = numbered + 1
  worker.number, offered[numbered] = numbered, {}
  for _, name in ipairs(keys_of(functions)) do worker:register(name, functions[name]) end
  return worker
end

local worker = methods.worker
local release_worker, shutdown_worker = worker.close, C.distag_worker_shutdown
local function leave(self)
  if self.handle ~= nil and self.number > 0 then shutdown_worker(self.handle, 0LL, nil, nil) end
  for _, tag in ipairs(offered[self.number] or {}) do waiting[tag] = nil end
  offered[self.number] = nil
  release_worker(self)
end
-- Leaves the group at once, although calls and contexts may hold the worker. What is open on it ends with CANCELLED.
function worker:close()
  local served = serving("number", -self.number)
  if served then served:close() end
  leave(self)
  if self.number > 0 then forget(self) end
end
function worker:register(name, run)
  text("the name of a function", name)
  local tag = next_tag(callable("register: a function is wanted for " .. name, run))
  local status = C.distag_worker_offer(self.handle, name, tag, nil, fresh())
  if status ~= 0 then waiting[tag] = nil end
  check(status, self)
  local own_tags = offered[math.abs(self.number)]
  if own_tags then own_tags[#own_tags + 1] = tag end
end
function worker:start_async(seconds)
  local place = out("future")
  check(C.distag_worker_start_async(self.handle, nanoseconds(seconds or 30, "seconds"), place, fresh()), self)
  if not serving("number", self.number) then workers[#workers + 1] = self end
  return made(place, self.handle)
end
function worker:start(seconds) return self:start_async(seconds):await() end
function worker:shutdown_async(seconds)
  local place = out("future")
  check(C.distag_worker_shutdown_async(self.handle, nanoseconds(seconds or M.FOREVER, "seconds"), place, fresh()), self)
  return made(place, self.handle)
end
function worker:shutdown(seconds) return self:shutdown_async(seconds):await() end
-- Withdraws a function: later calls do not find it. Gives whether none of it runs any more.
function worker:unregister(name)
  local status = C.distag_worker_unregister(self.handle, text("the name of a function", name), 0LL, fresh())
  if status == K.E_DEADLINE then return false end
  check(status, self)
  return true
end
-- The name; nil as long as it depends on the rank.
function worker:name()
  local found = used(C.distag_worker_get_name(open(self, "worker")), self)
  return found ~= nil and ffi.string(found) or nil
end
local STATES = { [K.MEMBER_ALIVE] = "alive", [K.MEMBER_LEFT] = "left", [K.MEMBER_LOST] = "lost" }
-- The latest member of a rank or a name: name, rank, incarnation, and its state, "alive", "left" or "lost".
function worker:member(which)
  local is_name = type(which) == "string"
  local fill = is_name and C.distag_worker_get_member_by_name or C.distag_worker_get_member
  which = is_name and text("the name of a member", which) or whole("the rank of a member", which, 0, INT32_MAX)
  local found = used(filled("distag_member", fill, open(self, "worker"), which), self)
  found.state, found.reserved = STATES[found.state] or "unknown", nil
  return found
end
-- The ranks of the living members whose names begin so, in their order; of all without an argument.
function worker:ranks(prefix)
  local count, room = ffi.new("size_t[1]"), 16
  prefix = text("the beginning of a name", prefix or "")
  while true do
    local ranks, found = ffi.new("int32_t[?]", room), {}
    check(C.distag_worker_copy_ranks(self.handle, prefix, ranks, room, count, fresh()), self)
    if count[0] <= room then
      for index = 1, tonumber(count[0]) do found[index] = ranks[index - 1] end
      return found
    end
    room = tonumber(count[0]) + 16 -- some may have joined the next time
  end
end
function worker:rank() return used(C.distag_worker_get_rank(open(self, "worker")), self) end
function worker:world_size() return used(C.distag_worker_get_world_size(open(self, "worker")), self) end
function worker:context()
  local place = out("context")
  check(C.distag_context_create(open(self, "worker"), place, fresh()), self)
  local context = own("context", place)
  context.worker = self.handle
  used(C.distag_worker_retain(self.handle), self) -- for calls by the context, which lets go of it
  return context
end

local function arguments_of(what, given, count)
  local handles, kept = ffi.new("distag_value *[?]", math.max(count, 1)), {}
  for index = 1, count do
    kept[index] = to_value(given[index], what .. "[" .. index - 1 .. "]", 1)
    handles[index - 1] = kept[index].handle
  end
  return handles, count, kept
end
local CALL = { timeout = true }
local function call_options(options)
  only("a call", options, CALL)
  return options
end
-- The options of a call: what a function asks of others ends with the call that it answers. nil where there are none.
local function raw_options(owner, handle, timeout)
  if handle == nil and open(owner, kind_of(owner)) then refuse("a context without a worker makes no calls") end
  local call = M.current_call()
  local within = call and call.invocation and call.worker.handle == handle and call.invocation or nil
  if timeout == nil and not within then return nil end
  local raw = ffi.new("distag_call_options", { struct_size = ffi.sizeof("distag_call_options") })
  raw.timeout_ns, raw.within = limit(timeout, "timeout"), within
  return raw
end
local function request(owner, handle, context, options, to, name, ...) -- options nil: a call without
  local raw = raw_options(owner, handle, options and options.timeout)
  local place = out("future")
  local handles, count, kept = arguments_of("args", { ... }, select("#", ...))
  text("the name of a worker", to)
  text("the name of a function", name)
  check(C.distag_call_async(handle, context, to, name, handles, count, raw, place, fresh()), owner, kept, raw)
  return made(place, handle)
end
function worker:call_async(to, name, ...) return request(self, self.handle, nil, nil, to, name, ...) end
function worker:call(to, name, ...) return self:call_async(to, name, ...):await() end
-- With options: timeout in seconds.
function worker:call_with(options, to, name, ...)
  return request(self, self.handle, nil, call_options(options), to, name, ...):await()
end
local function request_remote(owner, handle, context, to, name, ...)
  local place = out("rref")
  local handles, count, kept = arguments_of("args", { ... }, select("#", ...))
  text("the name of a worker", to)
  text("the name of a function", name)
  local raw = raw_options(owner, handle)
  check(C.distag_remote(handle, context, to, name, handles, count, raw, place, fresh()), owner, kept, raw)
  local made_there = own("rref", place)
  made_there.home = number_of(handle)
  return made_there
end
function worker:remote(to, name, ...) return request_remote(self, self.handle, nil, to, name, ...) end
function worker:all_gather(value, seconds)
  local place, given, timeout_ns = out("future"), to_value(value, "value", 1), nanoseconds(seconds or 60, "seconds")
  check(C.distag_worker_all_gather_async(self.handle, given.handle, nil, 0, timeout_ns, place, fresh()), self, given)
  return made(place, self.handle):await()
end

-- The counters; the same in the text format of Prometheus; members, calls and events in JSON.
function worker:stats() return used(filled("distag_stats", C.distag_worker_get_stats, open(self, "worker")), self) end
function worker:metrics() return used(copied(C.distag_worker_copy_metrics, open(self, "worker")), self) end
function worker:report() return used(copied(C.distag_worker_copy_report, open(self, "worker")), self) end
-- The open calls and waits of all members. One that does not answer within `seconds` is listed as silent.
function worker:group_report(seconds)
  local timeout_ns = nanoseconds(seconds or 1, "seconds")
  return used(copied(C.distag_worker_copy_group_report, open(self, "worker"), timeout_ns), self)
end

local TRACE = { folder = true, max_bytes = true }
-- Writes what the worker does to FOLDER/NAME.trace.json, which https://ui.perfetto.dev shows. Options: folder, which
-- has to be there (else the one that DISTAG_TRACE names); max_bytes of the file, 65,536 or more.
function worker:start_trace(options)
  options = options or {}
  only("start_trace", options, TRACE)
  local raw = ffi.new("distag_trace_options", { struct_size = ffi.sizeof("distag_trace_options") })
  raw.max_bytes = whole("max_bytes", options.max_bytes or 0, 0, EXACT)
  if options.folder then raw.folder = text("the folder", options.folder) end
  check(C.distag_worker_start_trace(self.handle, raw, fresh()), self, options)
end
function worker:stop_trace() check(C.distag_worker_stop_trace(self.handle, fresh()), self) end
-- Runs a function as a span of the trace, and gives what it gives. Nothing is written where nothing is traced.
function worker:trace(label, run, ...)
  local span = ffi.new("uint64_t[1]")
  callable("trace: a function is wanted", run)
  check(C.distag_trace_begin(self.handle, text("the label", label), span, fresh()), self)
  local function finish_span(is_ok, ...)
    if self.handle ~= nil then C.distag_trace_end(self.handle, span[0]) end
    if not is_ok then error((...), 0) end
    return ...
  end
  return finish_span(pcall(run, ...))
end

local rref = methods.rref
-- The value; with a context the fetch is recorded, and a pass goes through it.
function rref:fetch(within)
  local place, of = out("future"), within and handle_of("context", within, "fetch") or nil
  check(C.distag_rref_fetch_async(self.handle, of, nil, place, fresh()), self, within)
  local fetched = own("future", place)
  fetched.home = self.home
  return fetched:await()
end
function rref:owner() return used(ffi.string(C.distag_rref_get_owner(open(self, "rref"))), self) end

-- ---- contexts, gradients, optimizers ----

-- A context for training within this process, without a worker.
function M.context()
  local place = out("context")
  check(C.distag_context_create(nil, place, fresh()))
  return own("context", place)
end
local context = methods.context
local release_context = context.close
function context:close()
  if self.handle ~= nil and self.worker ~= nil then C.distag_worker_release(self.worker) end
  self.worker = nil
  release_context(self)
end
function context:call_async(to, name, ...) return request(self, self.worker, self.handle, nil, to, name, ...) end
function context:call(to, name, ...) return self:call_async(to, name, ...):await() end
function context:call_with(options, to, name, ...)
  return request(self, self.worker, self.handle, call_options(options), to, name, ...):await()
end
function context:remote(to, name, ...) return request_remote(self, self.worker, self.handle, to, name, ...) end
local function handles_of(kind, objects, count, what)
  local handles = ffi.new("distag_" .. kind .. " *[?]", math.max(count, 1))
  for index = 1, count do
    if objects[index] ~= nil then handles[index - 1] = handle_of(kind, objects[index], what) end
  end
  return handles
end
local BACKWARD = { seeds = true, remote_roots = true, retain_graph = true, create_graph = true, fast = true,
                   timeout = true }
-- Runs a backward pass from scalars through every worker they depend on.
function context:backward(...) return self:backward_with({}, ...) end
-- With options: seeds, a table with a gradient for each root (nil for a scalar); remote_roots, rrefs to scalars;
-- retain_graph keeps the graph for another pass; create_graph gives gradients a history, for a pass through them, and
-- retains the graph; fast expects that the roots depend on every recorded call; timeout in seconds.
function context:backward_with(options, ...)
  only("backward_with", options, BACKWARD)
  local count, place, given = select("#", ...), out("future"), { ... }
  for index = 1, count do handle_of("tensor", given[index], "a root") end
  for _, index in ipairs(keys_of(of_type("table", "seeds", options.seeds or {}))) do
    if type(index) ~= "number" or index < 1 or index > count or index ~= math.floor(index) then
      refuse("backward_with: seed " .. said(index) .. " of " .. count .. " roots")
    end
  end
  local roots = handles_of("tensor", given, count, "a root")
  local remote = of_type("table", "remote_roots", options.remote_roots or {})
  local seeds = options.seeds and handles_of("tensor", options.seeds, count, "a seed")
  local raw = ffi.new("distag_backward_options", { struct_size = ffi.sizeof("distag_backward_options") })
  local remote_count = length_of("remote_roots", remote)
  local remote_roots = handles_of("rref", remote, remote_count, "a remote root")
  raw.mode = flag("fast", options.fast) == 1 and K.BACKWARD_FAST or K.BACKWARD_SMART
  raw.retain_graph, raw.create_graph = flag("retain_graph", options.retain_graph),
                                       flag("create_graph", options.create_graph)
  raw.timeout_ns, raw.seeds = limit(options.timeout, "timeout"), seeds
  raw.remote_roots, raw.remote_root_count = remote_count > 0 and remote_roots or nil, remote_count
  local kept = { given, options, seeds, remote_roots }
  if self.worker == nil then return check(C.distag_backward(self.handle, roots, count, raw, fresh()), self, kept) end
  check(C.distag_backward_async(self.handle, roots, count, raw, place, fresh()), self, kept)
  made(place, self.worker):await()
end
-- The gradient of a leaf; nil when no pass has reached it.
function context:gradient(leaf)
  local place = out("gradients")
  if self.worker ~= nil then
    local settled = out("future")
    check(C.distag_context_settle_async(self.handle, settled, fresh()), self)
    made(settled, self.worker):await()
  end
  check(C.distag_get_gradients(self.handle, place, fresh()), self)
  local gradients = own("gradients", place)
  local found = C.distag_gradients_find(gradients.handle, handle_of("tensor", leaf, "a leaf"))
  return used(lent("tensor", found), gradients, leaf)
end

-- An optimizer of tensors and rrefs: kind, parameters, settings; worker nil is for tensors of this process.
function M.optimizer(at, kind, parameters, settings)
  settings = of_type("table", "settings", settings or {})
  local length = length_of("parameters", of_type("table", "parameters", parameters))
  local handles, count, kept = arguments_of("parameters", parameters, length)
  local place, owner = out("optimizer"), at and handle_of("worker", at, "optimizer")
  check(C.distag_optimizer_create(owner, text("the kind", kind), handles, count, place, fresh()), at, kept)
  local optimizer = own("optimizer", place)
  optimizer.has_worker = at and 1 or 0
  for _, name in ipairs(keys_of(settings)) do optimizer:set(name, settings[name]) end
  return optimizer
end
local optimizer = methods.optimizer
-- Changes a setting from the next step on; 0 and 1 are no and yes.
function optimizer:set(name, content)
  text("a setting", name)
  check(C.distag_optimizer_set(self.handle, name, numeric(name, content), fresh()), self)
end
-- Scales the gradients of all parameters so that their joint 2-norm is at most `most`, and gives the norm there was.
function optimizer:clip(within, most)
  local place, norm, of = out("future"), ffi.new("double[1]"), handle_of("context", within, "clip")
  numeric("clip", most)
  if self.has_worker == 0 then
    check(C.distag_optimizer_clip(self.handle, of, most, nil, norm, fresh()), self, within)
    return norm[0]
  end
  check(C.distag_optimizer_clip_async(self.handle, of, most, nil, place, fresh()), self, within)
  return made(place, within.worker):await()
end
-- The state at all owners and the settings, as a value of C for load.
function optimizer:save()
  local place, state = out("future"), out("value")
  if self.has_worker == 0 then
    check(C.distag_optimizer_save(self.handle, nil, state, fresh()), self)
    return own("value", state)
  end
  check(C.distag_optimizer_save_async(self.handle, nil, place, fresh()), self)
  local saved = made(place)
  wait_for(saved)
  return used(lent("value", lent_value(saved)), saved)
end
-- Puts a state back into an optimizer of the same kind and parameters.
function optimizer:load(state)
  local place, given = out("future"), to_value(state, "load", 1)
  if self.has_worker == 0 then
    return check(C.distag_optimizer_load(self.handle, given.handle, nil, fresh()), self, given)
  end
  check(C.distag_optimizer_load_async(self.handle, given.handle, nil, place, fresh()), self, given)
  made(place):await()
end
function optimizer:step(within)
  local place, of = out("future"), handle_of("context", within, "step")
  if self.has_worker == 0 then return check(C.distag_optimizer_step(self.handle, of, nil, fresh()), self, within) end
  check(C.distag_optimizer_step_async(self.handle, of, nil, place, fresh()), self, within)
  made(place, within.worker):await()
end

function context:info()
  return used(filled("distag_context_info", C.distag_context_get_info, open(self, "context")), self)
end
function context:report() return used(copied(C.distag_context_copy_report, open(self, "context")), self) end

-- ---- the place of this process, drawings ----

-- What a worker without rank and world_size takes from the environment: rank, world_size, local_rank, local_size, node,
-- node_count, restart, launcher. What the launcher does not tell is nil; an open world has rank and world_size -1.
function M.environment()
  local found = filled("distag_environment", C.distag_get_environment)
  for _, each in ipairs({ { "local_rank", -1 }, { "local_size", 0 }, { "node", -1 }, { "node_count", 0 } }) do
    if found[each[1]] == each[2] then found[each[1]] = nil end
  end
  return found
end

local FORMATS = { text = K.PICTURE_TEXT, json = K.PICTURE_JSON, svg = K.PICTURE_SVG,
  html = K.PICTURE_HTML }
local PICTURE = { format = true, color = true, width = true, dims = true, label = true }
-- Draws which members hold which part of a tensor, by a spec in HLO text: "{devices=[2,2]0,1,2,3}". Without a shape
-- (nil) all parts are drawn alike. Options: format "text", "json", "svg" or "html"; color and width of text; dims, the
-- two that are drawn; label, before the numbers of members.
function M.visualize_sharding(spec, shape, options)
  options = options or {}
  only("visualize_sharding", options, PICTURE)
  local raw = ffi.new("distag_picture_options")
  local dims, dim_count = ints("dims", of_type("table", "dims", options.dims or { 0, 0 }))
  if dim_count ~= 2 then refuse("dims: the two dims that are drawn are wanted, not " .. dim_count) end
  raw.struct_size = ffi.sizeof(raw)
  raw.format = FORMATS[options.format or "text"]
    or refuse("format: text, json, svg or html, not " .. said(options.format))
  raw.color, raw.width = flag("color", options.color), whole("width", options.width or 0, 0, 4294967295)
  raw.row_dim, raw.column_dim = dims[0], dims[1]
  if options.label then raw.label = text("the label", options.label) end
  local sizes, ndim = nil, 0
  if shape then sizes, ndim = ints("the shape", shape) end
  return used(copied(C.distag_visualize_sharding, nil, text("the spec", spec), sizes, ndim, raw), options)
end

-- ---- the whole ----

local function operand(given, other)
  if type(given) == "number" then return M.tensor(given, other:dtype()) end
  return given
end
local metatables = { tensor = {
  __add = function(a, b)
    if type(b) == "number" then return M.ops.add_scalar(a, b) end
    return M.ops.add(operand(a, b), b)
  end,
  __sub = function(a, b)
    if type(b) == "number" then return M.ops.add_scalar(a, -b) end
    return M.ops.sub(operand(a, b), b)
  end,
  __mul = function(a, b)
    if type(b) == "number" then return M.ops.mul_scalar(a, b) end
    if type(a) == "number" then return M.ops.mul_scalar(b, a) end
    return M.ops.mul(a, b)
  end,
  __div = function(a, b) return M.ops.div(operand(a, b), operand(b, a)) end,
  __pow = function(a, b) return M.ops.pow(operand(a, b), operand(b, a)) end,
  __unm = function(a) return M.ops.neg(a) end,
  __eq = function(a, b)
    local are_both = ffi.istype(types.tensor, a) and ffi.istype(types.tensor, b)
    return are_both and a.handle ~= nil and b.handle ~= nil and a:id() == b:id()
  end,
  __tostring = function(a)
    if a.handle == nil then return "closed tensor" end
    return "tensor " .. a:dtype() .. " [" .. table.concat(a:shape(), ", ") .. "]"
  end,
}, worker = { __gc = leave } } -- no coroutine goes on in a finalizer
for _, kind in ipairs(keys_of(methods)) do
  local class = methods[kind]
  local metatable = metatables[kind] or {}
  metatable.__index, metatable.__gc = class, metatable.__gc or class.close
  types[kind] = ffi.metatype("distag_lua_" .. kind, metatable)
end

-- Runs a function, closes all tensors that were made in it but those that it gives to keep(tensor), its argument, and
-- gives what it gave. Other coroutines and functions that run while it waits are not in it.
function M.scope(run)
  local outer, kept, tensors = scope, {}, {}
  callable("scope: a function is wanted", run)
  local function finish_scope(is_ok, ...)
    scope = outer
    for _, each in ipairs(tensors) do
      local is_kept = false
      for _, other in ipairs(kept) do is_kept = is_kept or other.handle == each.handle end
      if not is_kept then each:close() elseif outer then outer[#outer + 1] = each end
    end
    if not is_ok then error((...), 0) end
    return ...
  end
  scope = tensors
  return finish_scope(pcall(run, function(each)
    handle_of("tensor", each, "keep")
    kept[#kept + 1] = each
    return each
  end))
end
function M.handle_count() return tonumber(C.distag_get_handle_count()) end
-- The live handles in JSON, by kind; with DISTAG_VALIDATE=1 in the environment each of them.
function M.handle_report() return copied(C.distag_copy_handle_report) end
function M.version() return ffi.string(C.distag_get_version()) end

registry.distag = M
return M
