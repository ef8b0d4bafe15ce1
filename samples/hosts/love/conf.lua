-- A game without a window, for servers and tests: leave it out in yours.
function love.conf(t)
  t.window = nil
  for _, module in ipairs({ "audio", "font", "graphics", "image", "joystick", "keyboard", "mouse", "physics",
                            "sound", "touch", "video", "window" }) do
    t.modules[module] = false
  end
end
