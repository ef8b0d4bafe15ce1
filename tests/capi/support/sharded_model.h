/* A small model that is trained alone or by the members of a mesh. */
#ifndef CAPI_SUPPORT_SHARDED_MODEL_H
#define CAPI_SUPPORT_SHARDED_MODEL_H

#include <distag.h>

enum { kParameters = 4, kTrainingSteps = 20, kWeights = 8 * 5 + 8 + 3 * 8 + 3 };

/* Specs of the batch [8, 5] and of the parameters: [8, 5], [8], [3, 8], [3]. */
typedef struct sharded_form {
  const char *name;
  const char *batch;
  const char *parameters[kParameters];
} sharded_form;

extern const sharded_form kShardedForms[4];

/* A double tensor of numbers that depend on the seed alone. */
distag_tensor *sharded_numbers(const int64_t *shape, size_t ndim, int64_t seed, distag_error *err);
/* Adam in float64. `weights` gets the parameters one after the other, whole; `mesh` NULL: alone. The first failure is
 * in `err`, and ends it. */
void sharded_train(distag_worker *worker, distag_mesh *mesh, const sharded_form *form, double weights[kWeights],
                   distag_error *err);
/* Whether the members of a mesh get the weights of a training alone, within 1e-9; else the difference is printed. */
int sharded_train_is_right(distag_worker *worker, distag_mesh *mesh, const sharded_form *form);

#endif /* CAPI_SUPPORT_SHARDED_MODEL_H */
