/* A library of Godot with which a test measures another: the frames and what is left of it when it is unloaded. */
#define _GNU_SOURCE
#include "../left.h"
#include "gdnative.h"

static const godot_api* api;
static frames all;

static godot_variant make_number(double number) {
  godot_variant made;
  api->variant_new_real(&made, number);
  return made;
}

/* A frame begins; one ends: ms of the processor that it took; how often frames have slept in there. */
GODOT_EXPORT godot_variant measure_begin(const godot_array* args) {
  (void)args;
  begin_frame(&all);
  return make_number(0);
}
GODOT_EXPORT godot_variant measure_end(const godot_array* args) {
  (void)args;
  return make_number(milliseconds_since(CLOCK_THREAD_CPUTIME_ID, all.processor));
}
GODOT_EXPORT godot_variant measure_sleeps(const godot_array* args) {
  (void)args;
  return make_number((double)(count_sleeps() - all.sleeps));
}

/* Counts of this process. */
GODOT_EXPORT godot_variant measure_threads(const godot_array* args) {
  (void)args;
  return make_number(count_left().threads);
}
GODOT_EXPORT godot_variant measure_descriptors(const godot_array* args) {
  (void)args;
  return make_number(count_left().descriptors);
}
GODOT_EXPORT godot_variant measure_mappings(const godot_array* args) { /* of files of shared libraries */
  (void)args;
  return make_number(count_mappings(".so"));
}

/* The next worker meets its group in the folder of this number. */
GODOT_EXPORT godot_variant measure_place(const godot_array* args) {
  char place[4096];
  const godot_variant index = api->array_get(args, 0);
  snprintf(place, sizeof place, "file://%s/%d", getenv("ROUNDS"), (int)api->variant_as_real(&index));
  return make_number(setenv("DISTAG_RENDEZVOUS", place, 1));
}

GODOT_EXPORT void godot_gdnative_init(const godot_init_options* options) { api = options->api; }
GODOT_EXPORT void godot_gdnative_terminate(const void* options) { (void)options; }
