/* Values: making them, reading them, lists and maps, and what they refuse. */
#include "capi/check.h"

static void scalars(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  int32_t flag = 7;
  int64_t whole = 7;
  double real = 7;
  const char *text = "?";
  const void *data = &err;
  size_t size = 7;

  CHECK_OK(distag_value_create_null(&value, &err));
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_NULL);
  CHECK_INT(distag_value_get_count(value), 0);
  CHECK(distag_value_get_item(value, 0) == NULL);
  CHECK_FAILS(distag_value_get_bool(value, &flag, &err), DISTAG_E_INVALID_ARGUMENT, "null");
  CHECK_INT(flag, 0);
  CHECK_FAILS(distag_value_get_int64(value, &whole, &err), DISTAG_E_INVALID_ARGUMENT, "int64");
  CHECK_INT(whole, 0);
  CHECK_FAILS(distag_value_get_float64(value, &real, &err), DISTAG_E_INVALID_ARGUMENT, "float64");
  CHECK_NEAR(real, 0);
  CHECK_FAILS(distag_value_get_text(value, &text, &err), DISTAG_E_INVALID_ARGUMENT, "text");
  CHECK(text == NULL);
  CHECK_FAILS(distag_value_get_bytes(value, &data, &size, &err), DISTAG_E_INVALID_ARGUMENT, "bytes");
  CHECK(data == NULL && size == 0);
  distag_value_release(value);

  CHECK_OK(distag_value_create_bool(1, &value, &err));
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_BOOL);
  CHECK_OK(distag_value_get_bool(value, &flag, &err));
  CHECK_INT(flag, 1);
  distag_value_retain(value);
  distag_value_release(value);
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_BOOL);
  distag_value_release(value);

  CHECK_OK(distag_value_create_int64(-5, &value, &err));
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_INT64);
  CHECK_OK(distag_value_get_int64(value, &whole, &err));
  CHECK_INT(whole, -5);
  CHECK_OK(distag_value_get_float64(value, &real, &err)); /* takes an int64 too */
  CHECK_NEAR(real, -5);
  distag_value_release(value);

  CHECK_OK(distag_value_create_float64(2.5, &value, &err));
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_FLOAT64);
  CHECK_OK(distag_value_get_float64(value, &real, &err));
  CHECK_NEAR(real, 2.5);
  CHECK_FAILS(distag_value_get_int64(value, &whole, &err), DISTAG_E_INVALID_ARGUMENT, "float64");
  distag_value_release(value);
}

static void texts_and_bytes(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  const char *text = NULL;
  const void *data = NULL;
  size_t size = 0;
  char reused[] = "h\xC3\xA9llo";

  CHECK_OK(distag_value_create_text(reused, &value, &err));
  memset(reused, 'x', 4); /* it was copied */
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_TEXT);
  CHECK_OK(distag_value_get_text(value, &text, &err));
  CHECK_TEXT(text, "h\xC3\xA9llo");
  distag_value_release(value);
  CHECK_FAILS(distag_value_create_text("\xC3", &value, &err), DISTAG_E_INVALID_ARGUMENT, "UTF-8");
  CHECK(value == NULL);

  CHECK_OK(distag_value_create_bytes("a\0b", 3, &value, &err));
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_BYTES);
  CHECK_OK(distag_value_get_bytes(value, &data, &size, &err));
  CHECK(size == 3 && memcmp(data, "a\0b", 3) == 0);
  distag_value_release(value);
  CHECK_OK(distag_value_create_bytes(NULL, 0, &value, &err));
  CHECK_OK(distag_value_get_bytes(value, &data, &size, &err));
  CHECK_INT(size, 0);
  distag_value_release(value);
}

static void lists(void) {
  const int64_t numbers[] = {3, 1, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *list = NULL, *outer = NULL, *item = NULL;
  distag_tensor *tensor = NULL, *seen = NULL;
  int64_t whole = 0;

  CHECK_OK(distag_value_create_int64_list(numbers, 3, &list, &err));
  CHECK_INT(distag_value_get_kind(list), DISTAG_VALUE_LIST);
  CHECK_INT(distag_value_get_count(list), 3);
  CHECK_OK(distag_value_get_int64(distag_value_get_item(list, 2), &whole, &err));
  CHECK_INT(whole, 2);
  CHECK(distag_value_get_item(list, 3) == NULL);
  CHECK(distag_value_get_key(list, 0) == NULL);
  CHECK(distag_value_get_entry(list, "a") == NULL);

  CHECK_OK(distag_full(4, DISTAG_FLOAT64, NULL, 0, &tensor, &err));
  distag_value *both[2];
  both[0] = list;
  both[1] = distag_tensor_as_value(tensor);
  CHECK((void *)both[1] == (void *)tensor);
  CHECK_OK(distag_value_create_list(both, 2, &outer, &err));
  distag_value_release(list); /* the outer list holds what is in it */
  CHECK_OK(distag_value_get_tensor(distag_value_get_item(outer, 1), &seen, &err));
  CHECK_INT(distag_tensor_get_id(seen), distag_tensor_get_id(tensor));
  item = distag_value_get_item(outer, 0);
  CHECK(distag_value_get_item(outer, 0) == item);
  distag_value_retain(item); /* lives on without its parent */
  distag_value_release(outer);
  distag_tensor_release(tensor);
  CHECK_INT(distag_value_get_count(item), 3);
  distag_value_release(item);

  CHECK_OK(distag_value_create_list(NULL, 0, &list, &err));
  CHECK_INT(distag_value_get_count(list), 0);
  distag_value_release(list);
  CHECK_OK(distag_value_create_int64_list(NULL, 0, &list, &err));
  distag_value_release(list);
}

/* Numbers in one call, there and back. */
static void numbers(void) {
  const double reals[] = {0.5, -0.0, 1e300};
  const int64_t wholes[] = {1, INT64_MIN, (INT64_C(1) << 53) + 1};
  double real[4] = {9, 9, 9, 9};
  int64_t whole[4] = {9, 9, 9, 9};
  size_t count = 9;
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *list = NULL, *mixed = NULL, *text = NULL, *items[2];
  CHECK_OK(distag_value_create_float64_list(reals, 3, &list, &err));
  CHECK_INT(distag_value_get_kind(distag_value_get_item(list, 2)), DISTAG_VALUE_FLOAT64);
  CHECK_OK(distag_value_copy_float64s(list, real, 4, &count, &err));
  CHECK_INT(count, 3);
  CHECK(memcmp(real, reals, sizeof reals) == 0 && real[3] == 9);
  real[1] = 9;
  CHECK_OK(distag_value_copy_float64s(list, real, 1, &count, &err));
  CHECK(count == 3 && real[1] == 9);
  CHECK_OK(distag_value_copy_float64s(list, NULL, 0, &count, &err));
  CHECK_INT(count, 3);
  CHECK_FAILS(distag_value_copy_int64s(list, whole, 4, &count, &err), DISTAG_E_INVALID_ARGUMENT,
              "item 0 of the list is a float64, not an int64");
  CHECK(count == 0 && whole[0] == 9);
  distag_value_release(list);

  CHECK_OK(distag_value_create_int64_list(wholes, 3, &list, &err));
  CHECK_OK(distag_value_copy_int64s(list, whole, 3, &count, &err));
  CHECK(count == 3 && memcmp(whole, wholes, sizeof wholes) == 0);
  CHECK_OK(distag_value_copy_float64s(list, real, 3, &count, &err));
  CHECK(count == 3 && real[0] == 1 && real[1] == (double)INT64_MIN);

  CHECK_OK(distag_value_create_text("2", &text, &err));
  CHECK_OK(distag_value_create_int64(7, &items[0], &err));
  items[1] = text;
  CHECK_OK(distag_value_create_list(items, 2, &mixed, &err));
  whole[0] = 9;
  CHECK_FAILS(distag_value_copy_int64s(mixed, whole, 1, &count, &err), DISTAG_E_INVALID_ARGUMENT, "item 1");
  CHECK(count == 0 && whole[0] == 9); /* nothing is copied, though the first would fit */
  CHECK_FAILS(distag_value_copy_float64s(text, real, 1, &count, &err), DISTAG_E_INVALID_ARGUMENT, "a text, not a list");
  distag_value_release(items[0]);
  distag_value_release(text);
  distag_value_release(mixed);
  distag_value_release(list);

  CHECK_OK(distag_value_create_float64_list(NULL, 0, &list, &err));
  CHECK_OK(distag_value_copy_float64s(list, NULL, 0, &count, &err));
  CHECK_INT(count, 0);
  distag_value_release(list);
}

static void nesting(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *inner = NULL, *outer = NULL;
  CHECK_OK(distag_value_create_null(&inner, &err));
  for (int depth = 1; depth <= 16; ++depth) {
    CHECK_OK(distag_value_create_list(&inner, 1, &outer, &err));
    distag_value_release(inner);
    inner = outer;
  }
  CHECK_FAILS(distag_value_create_list(&inner, 1, &outer, &err), DISTAG_E_INVALID_ARGUMENT, "16");
  CHECK(outer == NULL);
  distag_value_release(inner);
}

static void maps(void) {
  const char *keys[] = {"b", "a", "c"};
  const char *twice[] = {"a", "b", "a"};
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *items[3] = {NULL, NULL, NULL};
  distag_value *map = NULL;
  int64_t whole = 0;

  for (int64_t i = 0; i < 3; ++i) CHECK_OK(distag_value_create_int64(i, &items[i], &err));
  CHECK_OK(distag_value_create_map(keys, items, 3, &map, &err));
  CHECK_INT(distag_value_get_kind(map), DISTAG_VALUE_MAP);
  CHECK_INT(distag_value_get_count(map), 3);
  CHECK_TEXT(distag_value_get_key(map, 0), "a"); /* sorted */
  CHECK_TEXT(distag_value_get_key(map, 2), "c");
  CHECK(distag_value_get_key(map, 3) == NULL);
  CHECK_OK(distag_value_get_int64(distag_value_get_item(map, 0), &whole, &err));
  CHECK_INT(whole, 1);
  CHECK_OK(distag_value_get_int64(distag_value_get_entry(map, "c"), &whole, &err));
  CHECK_INT(whole, 2);
  CHECK(distag_value_get_entry(map, "d") == NULL);
  distag_value_release(map);
  CHECK_FAILS(distag_value_create_map(twice, items, 3, &map, &err), DISTAG_E_INVALID_ARGUMENT, "\"a\"");
  CHECK(map == NULL);
  keys[1] = "\xFF";
  CHECK_FAILS(distag_value_create_map(keys, items, 3, &map, &err), DISTAG_E_INVALID_ARGUMENT, "UTF-8");
  keys[1] = NULL;
  CHECK_FAILS(distag_value_create_map(keys, items, 3, &map, &err), DISTAG_E_INVALID_ARGUMENT, "NULL");
  for (int i = 0; i < 3; ++i) distag_value_release(items[i]);
  CHECK_OK(distag_value_create_map(NULL, NULL, 0, &map, &err));
  distag_value_release(map);
}

int main(void) {
  scalars();
  texts_and_bytes();
  lists();
  numbers();
  nesting();
  maps();
  return check_end();
}
