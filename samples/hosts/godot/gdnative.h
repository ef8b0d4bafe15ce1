/* The part of GDNative that learning.c uses, since Debian packages no headers of Godot 3: the table of functions is
 * version 1.0 of its core, and is the same in Godot 3.1 to 3.6 (gdnative_api.json of its sources lists it). */
#ifndef GDNATIVE_H
#define GDNATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint64_t opaque[3];
} godot_variant;
typedef struct {
  void *opaque;
} godot_string;
typedef struct godot_array godot_array;

#define GODOT_UNUSED(FIRST, NEXT) void (*from_##FIRST[NEXT - FIRST])(void)
typedef struct godot_api {
  unsigned int type, major, minor;
  const void *next;
  unsigned int extension_count;
  const void *extensions;
  GODOT_UNUSED(0, 333);
  godot_variant (*array_get)(const godot_array *array, int index);
  GODOT_UNUSED(334, 356);
  int (*array_size)(const godot_array *array);
  GODOT_UNUSED(357, 513);
  void (*variant_new_real)(godot_variant *out, double real);
  void (*variant_new_string)(godot_variant *out, const godot_string *text);
  GODOT_UNUSED(515, 540);
  double (*variant_as_real)(const godot_variant *variant);
  GODOT_UNUSED(541, 681);
  godot_string (*string_from_utf8)(const char *text);
  GODOT_UNUSED(682, 721);
  void (*string_destroy)(godot_string *text);
} godot_api;
_Static_assert(offsetof(godot_api, string_destroy) == 40 + 721 * sizeof(void *), "gaps that fit");

typedef struct godot_init_options {
  bool is_in_editor;
  uint64_t hashes[3];
  void (*reports[2])(void);
  void *library;
  const godot_api *api;
} godot_init_options;

#define GODOT_EXPORT __attribute__((visibility("default")))

#endif
