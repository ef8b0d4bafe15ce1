-- A game that learns while it runs: balls fly through a court of height 1 and bounce off its walls; from where a ball
-- starts, and how steeply, the model guesses where it lands. The first layer is the game's, the others and most of the
-- work are the learner's, in another process. No frame waits: a step of training is a coroutine, which love.update
-- carries on by distag.poll(0) as its answers come.
io.stdout:setvbuf("line")
local distag = require("distag")

local BATCH, RETRY = 32, 60 -- balls of a step; frames until the next try while the learner is gone
local weight = distag.randn(100, { 32, 2 }):with_grad()
local bias = distag.zeros({ 32 }):with_grad()
local worker = distag.worker({ name = "game" }) -- rank, size and address: from distag run
local optimizer, is_started, is_training, is_lost, is_over
local frame, next_try, steps, loss = 0, 0, 0, nil

-- Where balls start (from -1 to 1, as all that the model sees), their slopes, and where they land.
local function throw_balls()
  local starts, landings = {}, {}
  for i = 1, BATCH do
    local height, slope = love.math.random(), love.math.random() * 2 - 1
    local landing = height + slope
    if landing < 0 then landing = -landing elseif landing > 1 then landing = 2 - landing end
    starts[i], landings[i] = { height * 2 - 1, slope }, { landing * 2 - 1 }
  end
  return distag.tensor(starts), distag.tensor(landings)
end

-- Each line with a colon waits for the learner: the coroutine then rests until the answer is there.
local function train_step()
  if not optimizer then
    local remote = worker:remote("learner", "parameters") -- they stay there, and are stepped there
    optimizer = distag.optimizer(worker, "adam", { weight, bias, remote }, { lr = 0.005 })
  end
  return distag.scope(function() -- closes the tensors that are made in it
    local starts, landings = throw_balls()
    local context = worker:context()
    local is_ok, result = pcall(function()
      local guesses = context:call("learner", "forward", starts:linear(weight, bias):tanh())
      local errors = guesses:mse_loss(landings)
      context:backward(errors) -- through both processes
      optimizer:step(context)  -- at both
      return errors:item()
    end)
    context:close()
    return is_ok and result or error(result, 0)
  end)
end

-- One step; without the learner the game goes on, and says so once.
local function train()
  local is_ok, result = pcall(train_step)
  if is_ok then
    if is_lost then print("game: trains again") end
    steps, loss, is_lost = steps + 1, result, false
  elseif distag.is_error(result) then
    if not is_lost and not is_over then print("game: goes on without the learner: " .. result.name) end
    is_lost, optimizer, next_try = true, nil, frame + RETRY
  else
    error(result, 0)
  end
  is_training = false
end

function love.load()
  distag.spawn(function()
    worker:start(30)
    is_started = true
  end)
end

function love.update()
  frame = frame + 1
  if is_started and not is_training and frame >= next_try then
    is_training = true
    distag.spawn(train)
  end
  distag.poll(0) -- all that has come; never waits
  if frame % 500 == 0 and loss then print(("game: frame %d, step %d, loss %.4f"):format(frame, steps, loss)) end
end

-- May come in the middle of a step; that step then fails.
function love.quit()
  is_over = true
  worker:close()
end
