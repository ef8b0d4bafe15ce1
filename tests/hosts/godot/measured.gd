# The sample of samples/hosts/godot as a test runs it: each frame is measured by the clock of the processor, and the
# game leaves in the middle of a step once the file exists that LEAVE names.
extends "res://game.gd"

var measure = GDNative.new()
var file = File.new()
var times = []
var sleeps = 0 # of frames, by themselves: a lock that another thread has, or a wait


func _ready():
	measure.library = load("res://measure.gdnlib")
	measure.initialize()


func count(what):
	return measure.call_native("standard_varcall", "measure_" + what, [])


func learn():
	count("begin")
	.learn()
	times.append(count("end"))
	sleeps += count("sleeps")
	if steps == 1 and not is_busy:
		print("game: loss %.4f at first" % loss)
	if is_started and is_busy and not is_lost and file.file_exists(OS.get_environment("LEAVE")):
		leave()


func at(part):
	return times[max(0, ceil(part * times.size()) - 1)]


func leave():
	times.sort()
	print("game: leaves in a step after %d frames, %d sleeps, p50 %.3f, p99 %.3f, longest %.3f ms" % [
			times.size(), sleeps, at(0.5), at(0.99), at(1)])
	get_tree().quit()


# Godot 3.2 ends by SIGSEGV where a library is still loaded.
func _exit_tree():
	measure.terminate()
