package unit

/*
#cgo pkg-config: distag
#include <distag.h>

static distag_status release_twice(void) {
  distag_tensor *tensor = NULL;
  const distag_status status = distag_arange(0, 2, 1, DISTAG_FLOAT32, &tensor, NULL);
  distag_tensor_release(tensor);
  distag_tensor_release(tensor);
  return status;
}
*/
import "C"

// releaseTwice does what no call of the binding does; here, as files of tests have no C.
func releaseTwice() bool { return C.release_twice() == C.DISTAG_OK }
