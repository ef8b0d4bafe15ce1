# A game that learns while it runs: balls fly through a court of height 1 and bounce off its walls; from where a ball
# starts, and how steeply, the model guesses where it lands. The first layer is the game's (learning.c), the others and
# most of the work are the learner's, in another process. No frame waits: a frame begins a step of training, and later
# ones carry it on, as answers come.
extends Node

const BATCH = 32 # balls of a step
const RETRY = 60 # frames until the next try while the learner is gone

var native = GDNative.new()
var is_started = false
var is_busy = false # something was begun and has not ended
var is_lost = false
var frame = 0
var next_try = 0
var steps = 0
var loss = 0.0


func _ready():
	native.library = load("res://learning.gdnlib")
	native.initialize()


func run(procedure, args = []):
	return native.call_native("standard_varcall", procedure, args)


# For each ball where it starts and how steeply (from -1 to 1, as all that the model sees), and where it lands.
func throw_balls():
	var numbers = []
	for _i in BATCH:
		var height = randf()
		var slope = randf() * 2 - 1
		var landing = height + slope
		if landing < 0:
			landing = -landing
		elif landing > 1:
			landing = 2 - landing
		numbers += [height * 2 - 1, slope, landing * 2 - 1]
	return numbers


# In each frame. Without the learner the game goes on, and says so once.
func learn():
	frame += 1
	if not is_busy and frame >= next_try:
		is_busy = true
		if is_started:
			run("learning_train", throw_balls())
		else:
			run("learning_start")
	var end = run("learning_poll")
	if end is String:
		if not is_lost:
			print("game: goes on without the learner: ", end)
		is_busy = false
		is_lost = true
		next_try = frame + RETRY
	elif end != null:
		is_busy = false
		if is_started:
			steps += 1
			loss = end
			if is_lost:
				print("game: trains again")
			is_lost = false
		is_started = true
	if frame % 500 == 0 and steps > 0:
		print("game: frame %d, step %d, loss %.4f" % [frame, steps, loss])


func _process(_delta):
	learn()


# Also in the middle of a step.
func _exit_tree():
	native.terminate()
