-- Ends with 1,000 calls open, a coroutine that waits for one, and nothing closed.
local distag = require("distag")
local functions = { hang = function() while true do coroutine.yield() end end }
local options = { rank = 0, world_size = 2, rendezvous = "inproc://leave", functions = functions }
local a = distag.worker(options)
options.rank = 1
local b = distag.worker(options)
distag.wait_all({ a:start_async(20), b:start_async(20) })
local futures = {}
for index = 1, 1000 do futures[index] = a:call_async("worker1", "hang", distag.tensor({ index })) end
distag.spawn(function() futures[1]:await() end)
distag.poll(0.02)
assert(#futures == 1000)
