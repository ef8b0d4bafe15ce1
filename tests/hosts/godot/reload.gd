# Loads the sample's library ten times, each time with a learner of its own, trains, and unloads it in the middle of a
# step, by turns in another part of it.
extends Node

const ROUNDS = 10
const STEPS = 5
const PATIENCE = 5000 # frames: threads that have ended are seen for a moment longer

var measure = GDNative.new()
var before
var game
var frame_of_step = 0
var step = -1
var index = 0
var waited = 0


func _ready():
	measure.library = load("res://measure.gdnlib")
	measure.initialize()
	before = count()
	begin_round()


func count():
	var found = []
	for what in ["threads", "descriptors", "mappings"]:
		found.append(int(run(what)))
	return found


func run(procedure, args = []):
	return measure.call_native("standard_varcall", "measure_" + procedure, args)


func begin_round():
	run("place", [index])
	print("game: round %d" % index)
	game = load("res://game.gd").new()
	step = -1
	waited = 0
	add_child(game)


func _process(_delta):
	if game == null:
		check_left()
		return
	frame_of_step = frame_of_step + 1 if game.steps == step else 0
	step = game.steps
	if step >= STEPS and game.is_busy and frame_of_step >= index % 3:
		var held = count()
		game.free()
		game = null
		print("game: trained %d steps, with %s beside %s" % [step, held, before])


func check_left():
	waited += 1
	var now = count()
	if now == before:
		print("game: nothing is left")
		index += 1
		if index < ROUNDS:
			begin_round()
		else:
			get_tree().quit()
	elif waited > PATIENCE:
		print("game: %s threads, descriptors and mappings are left of %s" % [now, before])
		get_tree().quit(1)


func _exit_tree():
	measure.terminate()
