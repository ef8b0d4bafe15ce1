/* Features of other libraries that this one lacks, as docs/parity.md lists them: each is refused with a clear error. */
#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *w;

/* No code travels: what can be called are registered functions and built-in ops, not what a name could import. */
static void code(void) {
  const char *const names[] = {"os.system", "torch::jit::forward", "builtins:print"};
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; ++i) {
    CHECK_FAILS(distag_call(w, NULL, "w0", names[i], NULL, 0, NULL, NULL, &err), DISTAG_E_NOT_FOUND, names[i]);
    CHECK(strstr(err.message, "\"w0\"") != NULL);
    CHECK_INT((int64_t)(err.flags & DISTAG_ERROR_MAY_HAVE_RUN), 0);
  }
}

/* An object of the host is not turned into bytes: it goes neither as an argument nor into a list. */
static void objects(void) {
  int thing = 0;
  distag_value *object = NULL, *list = NULL;
  CHECK_OK(distag_value_create_object("thing", &thing, NULL, &object, &err));
  CHECK_FAILS(distag_call(w, NULL, "w0", "neg", &object, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "object");
  CHECK_FAILS(distag_value_create_list(&object, 1, &list, &err), DISTAG_E_INVALID_ARGUMENT, "object");
  distag_value_release(object);
}

/* Tensors are dense and on the CPU. */
static void devices_and_layouts(void) {
  const char *const keys[] = {"device", "layout"}, *const texts[] = {"cuda:0", "sparse_coo"};
  distag_tensor *x = NULL, *y = NULL;
  size_t i;
  CHECK_OK(distag_full(1, DISTAG_FLOAT32, NULL, 0, &x, &err));
  for (i = 0; i < 2; ++i) {
    distag_value *text = NULL, *attributes = NULL;
    CHECK_OK(distag_value_create_text(texts[i], &text, &err));
    CHECK_OK(distag_value_create_map(&keys[i], &text, 1, &attributes, &err));
    CHECK_FAILS(distag_apply("clone", &x, 1, attributes, 0, &y, 1, &err), DISTAG_E_NOT_FOUND, keys[i]);
    distag_value_release(attributes);
    distag_value_release(text);
  }
  CHECK_FAILS(distag_tensor_create(&i, 1, 99, NULL, 0, &y, &err), DISTAG_E_UNSUPPORTED, "dtype");
  distag_tensor_release(x);
}

/* Only the known kinds of addresses are backends; the error lists them. */
static void refused_start(const char *rendezvous, const char *bind, distag_status status, const char *word) {
  distag_worker_options options = group_options(0, 1, rendezvous);
  distag_worker *other = NULL;
  options.bind = bind;
  CHECK_OK(distag_worker_create(&options, &other, &err));
  CHECK_FAILS(distag_worker_start(other, DISTAG_SECOND, &err), status, word);
  CHECK_OK(distag_worker_shutdown(other, 120 * DISTAG_SECOND, NULL, &err)); /* a release alone would not wait for it */
  distag_worker_release(other);
}

static void backends(void) {
  const distag_status invalid = DISTAG_E_INVALID_ARGUMENT;
  refused_start("mpi://world", NULL, invalid,
                "is invalid: give env://, tcp://host:port, file:///dir, inproc://name, etcd://");
  refused_start("pmix://", NULL, DISTAG_E_DISCONNECTED, "no launcher that speaks PMIx serves this process");
  refused_start("pmix://host", NULL, invalid, "pmix:// has nothing behind it");
  refused_start("etcd://127.0.0.1:2379", NULL, invalid, "give it as etcd://host:port[,host:port]/prefix");
  refused_start("etcd://me:word@127.0.0.1:2379/x", NULL, invalid,
                "rendezvous \"etcd://...\": an address holds no user");
  refused_start("inproc://refused_bind", "ucx://fast", invalid, "\"ucx://fast\" is no endpoint");
}

int main(void) {
  distag_worker_options options = group_options(0, 1, group_place("refused"));
  CHECK_OK(distag_worker_create(&options, &w, &err));
  CHECK_OK(distag_worker_start(w, 120 * DISTAG_SECOND, &err));
  code();
  objects();
  devices_and_layouts();
  backends();
  CHECK_OK(distag_worker_shutdown(w, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(w);
  return check_end();
}
