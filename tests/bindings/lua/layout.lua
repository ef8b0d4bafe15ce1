-- The declarations of bindings/lua are those of the library: LuaJIT takes them, lays the structs out as the compiler of
-- C does, and finds each function; the ops are those that the library has. usage: luajit layout.lua LIBRARY
local ffi = require("ffi")
local constants = require("distag.constants")
local ops = require("distag.ops")
local cdef = require("distag.cdef")

ffi.cdef(cdef)
local C = ffi.load(arg[1])

for name, layout in pairs(constants.layouts) do
  assert(ffi.sizeof(name) == layout.size, "size of " .. name)
  for _, member in ipairs(layout.members) do
    assert(ffi.offsetof(name, member[1]) == member[2], "offset of " .. name .. "." .. member[1])
  end
end

local functions = 0
for name in cdef:gmatch("(distag_[%w_]+)%(") do
  assert(C[name] ~= nil, name)
  functions = functions + 1
end
for name, handle in pairs(constants.handles) do
  assert(ffi.typeof(handle.type), name)
  assert(C[handle.retain] ~= nil and C[handle.release] ~= nil, name)
end
for status, entry in pairs(constants.statuses) do
  assert(ffi.string(C.distag_status_get_name(status)) == entry.name, entry.name)
end
assert(constants.statuses[50].class == "gave_up" and constants.statuses[1000].class == "user")
assert(constants.E_DEADLINE == 50 and C.DISTAG_E_DEADLINE == 50)
assert(ffi.string(C.distag_get_version()) == constants.VERSION)

local info = ffi.new("distag_op_info", { struct_size = ffi.sizeof("distag_op_info") })
assert(tonumber(C.distag_get_op_count()) == #ops)
for index, op in ipairs(ops) do
  assert(C.distag_get_op(index - 1, info, nil) == 0)
  assert(ffi.string(info.name) == op.name and info.attribute_count == #op.attributes, op.name)
  assert(op.c_function == nil or C[op.c_function] ~= nil, op.name)
end
print(functions .. " functions, " .. #ops .. " ops")
