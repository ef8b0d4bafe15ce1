/* Reinforcement learning over four processes: an agent with a policy, and three observers that play with it.
 *
 *   cc 09_actor_learner.c $(pkg-config --cflags --libs distag) -lm -o actor_learner
 *   distag run -n 4 ./actor_learner
 *
 * The game is the cart-pole: push a cart to the left or the right so that the pole on it stays upright. Each observer
 * has an environment, which never travels: it is a host object, and the agent holds an rref to it. To learn, the agent
 * makes a context and calls "play" on all observers at once, with the parameters of the policy. An observer plays some
 * episodes and answers with its loss, a tensor that depends on the parameters it was called with. So one
 * distag_backward from the three losses runs through all observers and ends at the parameters here, for a step of Adam.
 * (REINFORCE, Williams 1992.) Rank 0 is the agent. */
#include <distag.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kObservers = 3, kEpisodes = 4, kMostSteps = 500, kMostUpdates = 400 };
enum { kState = 4, kHidden = 64, kActions = 2, kParameters = 4 };
static const double kGoal = 150; /* steps that the pole stays upright, in the running mean */
static const double kDiscount = 0.99;

static int report(const char *who, const distag_error *err) {
  if (err->code == DISTAG_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", who, distag_status_get_name(err->code), err->message);
  return 1;
}

static distag_worker *create_worker(int rank, distag_error *err) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT; /* size and address come from distag run */
  distag_worker *worker = NULL;
  char name[16];
  snprintf(name, sizeof name, rank == 0 ? "agent" : "observer%d", rank);
  options.name = name;
  distag_worker_create(&options, &worker, err);
  return worker;
}

/* ---- the policy: linear(tanh(linear(state))), whose softmax is the probability of each action ---- */

static distag_tensor *apply_policy(distag_tensor *const *parameters, distag_tensor *states, distag_error *err) {
  distag_tensor *sum = NULL, *hidden = NULL, *logits = NULL;
  distag_linear(states, parameters[0], parameters[1], &sum, err);
  distag_tanh(sum, &hidden, err);
  distag_linear(hidden, parameters[2], parameters[3], &logits, err);
  distag_tensor_release(hidden);
  distag_tensor_release(sum);
  return logits;
}

/* ---- the cart-pole (Barto, Sutton and Anderson 1983) ---- */

enum { kPosition, kVelocity, kAngle, kSpin }; /* of the state: m, m/s, rad, rad/s */

typedef struct cart_pole {
  uint64_t seed;
  double state[kState];
  /* The play since the agent called: states, actions, and the discounted rewards that followed. */
  int64_t count;
  float states[kEpisodes * kMostSteps][kState];
  int64_t actions[kEpisodes * kMostSteps];
  double returns[kEpisodes * kMostSteps];
  float weights[kEpisodes * kMostSteps][kActions]; /* made of both, for the loss */
} cart_pole;

/* Uniform in [0, 1): a linear congruential generator (Knuth, MMIX). */
static double draw(cart_pole *self) {
  self->seed = self->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(self->seed >> 11) / 9007199254740992.0;
}

/* A cart of 1 kg, a pole of 0.1 kg and 1 m, pushed with 10 N for 20 ms. Gives 0 once the pole has fallen. */
static int push(double *state, int64_t action) {
  const double force = action == 1 ? 10 : -10, sine = sin(state[kAngle]), cosine = cos(state[kAngle]);
  const double drift = (force + 0.05 * state[kSpin] * state[kSpin] * sine) / 1.1;
  const double turn = (9.8 * sine - cosine * drift) / (0.5 * (4.0 / 3 - 0.1 * cosine * cosine / 1.1));

  state[kPosition] += 0.02 * state[kVelocity];
  state[kVelocity] += 0.02 * (drift - 0.05 * turn * cosine / 1.1);
  state[kAngle] += 0.02 * state[kSpin];
  state[kSpin] += 0.02 * turn;
  return fabs(state[kPosition]) < 2.4 && fabs(state[kAngle]) < 0.2095;
}

/* ---- an observer ---- */

/* Called by distag_remote: the object stays here, the agent gets an rref to it. */
static distag_status create_environment(void *unused, distag_invocation *invocation, distag_error *err) {
  cart_pole *self = calloc(1, sizeof *self);
  distag_value *object = NULL;
  int64_t seed = 0;

  (void)unused;
  if (self == NULL) return distag_error_set(err, DISTAG_E_OUT_OF_MEMORY, "no memory for an environment");
  distag_value_get_int64(distag_invocation_get_arg(invocation, 0), &seed, err);
  self->seed = (uint64_t)seed;
  distag_value_create_object("cart-pole", self, free, &object, err); /* frees it in the end, also if this fails */
  distag_invocation_return(invocation, object, err);
  distag_value_release(object);
  return err->code;
}

/* Draws an action for a state, with the probabilities of the policy. */
static int64_t choose(cart_pole *self, distag_tensor *const *policy, const float *state, distag_error *err) {
  const int64_t shape[2] = {1, kState};
  float logits[kActions] = {0};
  distag_tensor *x = NULL, *y;

  distag_tensor_create(state, kState * sizeof *state, DISTAG_FLOAT32, shape, 2, &x, err);
  y = apply_policy(policy, x, err);
  distag_tensor_copy_data(y, logits, sizeof logits, err);
  distag_tensor_release(y);
  distag_tensor_release(x);
  return draw(self) < 1 / (1 + exp((double)logits[0] - logits[1]));
}

static void play_episode(cart_pole *self, distag_tensor *const *policy, distag_error *err) {
  const int64_t begin = self->count;
  double following = 0;
  int64_t i;
  int upright = 1;

  for (i = 0; i < kState; ++i) self->state[i] = draw(self) * 0.1 - 0.05;
  while (upright && self->count < begin + kMostSteps && err->code == DISTAG_OK) {
    const int64_t step = self->count++;
    for (i = 0; i < kState; ++i) self->states[step][i] = (float)self->state[i];
    self->actions[step] = choose(self, policy, self->states[step], err);
    upright = push(self->state, self->actions[step]);
  }
  for (i = self->count; i-- > begin;) self->returns[i] = following = 1 + kDiscount * following;
}

/* The mean over all steps of -log(probability of the action) * (how much better than usual the later rewards were). */
static distag_tensor *compute_loss(cart_pole *self, distag_tensor *const *parameters, distag_error *err) {
  const int64_t n = self->count, states_shape[2] = {n, kState}, weights_shape[2] = {n, kActions};
  distag_tensor *states = NULL, *logits, *logs = NULL, *weights = NULL, *terms = NULL, *loss = NULL;
  double mean = 0, variance = 0;
  int64_t i;

  for (i = 0; i < n; ++i) mean += self->returns[i] / (double)n;
  for (i = 0; i < n; ++i) variance += (self->returns[i] - mean) * (self->returns[i] - mean) / (double)n;
  for (i = 0; i < n; ++i) {
    const double better = (self->returns[i] - mean) / (sqrt(variance) + 1e-6);
    self->weights[i][self->actions[i]] = (float)(-better / (double)n);
    self->weights[i][1 - self->actions[i]] = 0;
  }
  distag_tensor_create(self->states, (size_t)n * sizeof self->states[0], DISTAG_FLOAT32, states_shape, 2, &states, err);
  distag_tensor_create(self->weights, (size_t)n * sizeof self->weights[0], DISTAG_FLOAT32, weights_shape, 2, &weights,
                       err);
  logits = apply_policy(parameters, states, err);
  distag_log_softmax(logits, 1, &logs, err);
  distag_mul(logs, weights, &terms, err);
  distag_sum(terms, NULL, 0, 0, &loss, err);
  distag_tensor_release(terms);
  distag_tensor_release(weights);
  distag_tensor_release(logs);
  distag_tensor_release(logits);
  distag_tensor_release(states);
  return loss;
}

/* Arguments: the environment, and the parameters. Answers [loss, steps played]. Playing itself is not recorded: it uses
 * the parameters without their history. */
static distag_status play(void *unused, distag_invocation *invocation, distag_error *err) {
  distag_tensor *parameters[kParameters], *policy[kParameters] = {NULL}, *loss;
  distag_value *items[2] = {NULL, NULL}, *answer = NULL;
  void *object = NULL;
  cart_pole *self;
  size_t i;

  (void)unused;
  if (distag_invocation_get_object(invocation, 0, "cart-pole", &object, err) != DISTAG_OK) return err->code;
  self = object;
  for (i = 0; i < kParameters; ++i) {
    distag_invocation_get_tensor(invocation, i + 1, &parameters[i], err);
    distag_detach(parameters[i], &policy[i], err);
  }
  self->count = 0;
  for (i = 0; i < kEpisodes; ++i) play_episode(self, policy, err);
  loss = compute_loss(self, parameters, err);
  items[0] = distag_tensor_as_value(loss);
  distag_value_create_int64(self->count, &items[1], err);
  distag_value_create_list(items, 2, &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  distag_value_release(items[1]);
  distag_tensor_release(loss);
  for (i = 0; i < kParameters; ++i) distag_tensor_release(policy[i]);
  return err->code;
}

static int run_observer(int rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = create_worker(rank, &err);

  distag_worker_register(worker, "create_environment", create_environment, NULL, NULL, NULL, &err);
  distag_worker_register(worker, "play", play, NULL, NULL, NULL, &err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err);
  distag_worker_release(worker);
  return report("observer", &err);
}

/* ---- the agent ---- */

typedef struct agent {
  distag_worker *worker;
  distag_rref *environments[kObservers];
  distag_tensor *parameters[kParameters];
  distag_optimizer *adam;
} agent;

static void create_agent(agent *self, distag_error *err) {
  const int64_t shapes[kParameters][2] = {{kHidden, kState}, {kHidden}, {kActions, kHidden}, {kActions}};
  const size_t dims[kParameters] = {2, 1, 2, 1};
  const double scales[kParameters] = {0.5, 0, 0.1, 0};
  distag_value *values[kParameters];
  int i;

  for (i = 0; i < kParameters; ++i) {
    distag_tensor *random = NULL;
    distag_randn((uint64_t)(1 + i), DISTAG_FLOAT32, shapes[i], dims[i], &random, err);
    distag_mul_scalar(random, scales[i], &self->parameters[i], err);
    distag_tensor_set_requires_grad(self->parameters[i], 1, err);
    distag_tensor_release(random);
    values[i] = distag_tensor_as_value(self->parameters[i]);
  }
  distag_optimizer_create(self->worker, "adam", values, kParameters, &self->adam, err);
  distag_optimizer_set(self->adam, "lr", 0.01, err);
  for (i = 0; i < kObservers; ++i) {
    distag_member member = DISTAG_MEMBER_INIT;
    distag_value *seed = NULL;
    distag_worker_get_member(self->worker, i + 1, &member, err);
    distag_value_create_int64(17 + i, &seed, err);
    distag_remote(self->worker, NULL, member.name, "create_environment", &seed, 1, NULL, &self->environments[i], err);
    distag_value_release(seed);
  }
}

/* All observers play at once; then one pass through all of them, and a step. Returns the mean length of an episode. */
static double update(agent *self, distag_error *err) {
  distag_context *context = NULL;
  distag_future *played[kObservers] = {NULL};
  distag_value *args[1 + kParameters];
  distag_tensor *losses[kObservers] = {NULL};
  int64_t steps = 0, total = 0;
  int i;

  distag_context_create(self->worker, &context, err);
  for (i = 0; i < kParameters; ++i) args[1 + i] = distag_tensor_as_value(self->parameters[i]);
  for (i = 0; i < kObservers; ++i) {
    args[0] = distag_rref_as_value(self->environments[i]);
    distag_call_async(self->worker, context, distag_rref_get_owner(self->environments[i]), "play", args,
                      1 + kParameters, NULL, &played[i], err);
  }
  distag_wait_all(played, kObservers, DISTAG_FOREVER, err);
  for (i = 0; i < kObservers && err->code == DISTAG_OK; ++i) {
    distag_value *answer = NULL; /* lent by the future, as the loss is */
    distag_future_get_value(played[i], &answer, err);
    distag_value_get_tensor(distag_value_get_item(answer, 0), &losses[i], err);
    distag_value_get_int64(distag_value_get_item(answer, 1), &steps, err);
    total += steps;
  }
  distag_backward(context, losses, kObservers, NULL, err);
  if (err->code == DISTAG_OK) distag_optimizer_step(self->adam, context, NULL, err);
  for (i = 0; i < kObservers; ++i) distag_future_release(played[i]);
  distag_context_release(context);
  return (double)total / (kObservers * kEpisodes);
}

static int run_agent(void) {
  distag_error err = DISTAG_ERROR_INIT;
  agent self = {create_worker(0, &err), {NULL}, {NULL}, NULL};
  double running = 0;
  int updates, i;
  distag_worker_start(self.worker, 30 * DISTAG_SECOND, &err);
  create_agent(&self, &err);
  for (updates = 0; updates < kMostUpdates && running < kGoal && err.code == DISTAG_OK; ++updates) {
    const double length = update(&self, &err);
    running = updates == 0 ? length : 0.8 * running + 0.2 * length;
    if (updates % 5 == 0) printf("update %3d   running reward %5.1f\n", updates, running), fflush(stdout);
  }
  for (i = 0; i < kObservers; ++i) distag_rref_release(self.environments[i]);
  distag_optimizer_release(self.adam);
  for (i = 0; i < kParameters; ++i) distag_tensor_release(self.parameters[i]);
  distag_worker_shutdown(self.worker, 30 * DISTAG_SECOND, NULL, &err);
  distag_worker_release(self.worker);
  if (report("agent", &err)) return 1;
  printf("running reward %.1f after %d episodes: %s\n", running, updates * kObservers * kEpisodes,
         running >= kGoal ? "learned" : "NOT LEARNED");
  return running < kGoal;
}

int main(int argc, char **argv) {
  distag_environment place = DISTAG_ENVIRONMENT_INIT; /* of distag run, torchrun, srun ... */
  distag_error err = DISTAG_ERROR_INIT;
  if (argc > 1 || distag_get_environment(&place, &err) || place.rank < 0 || place.rank > kObservers) {
    return fprintf(stderr, "usage: distag run -n 4 %s\n%s\n", argv[0], err.message), 2;
  }
  return place.rank == 0 ? run_agent() : run_observer(place.rank);
}
