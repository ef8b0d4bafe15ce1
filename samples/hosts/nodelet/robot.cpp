// Nodelets of ROS 1. Robot learns while a cart balances its pole: the first layer of its policy is here, in the process
// of the nodelet manager, the others are at the learner, in another process. The policy learns to do as a regulator
// does, which holds the pole while the learner is slow or gone. No callback of ROS waits: each answer of the learner is
// a future, whose callback distag::worker::poll runs in a timer.
#include <nodelet/nodelet.h>
#include <ros/ros.h>
#include <std_msgs/Float32.h>
#include <std_msgs/Float32MultiArray.h>

#include <array>
#include <cmath>
#include <distag.hpp>
#include <pluginlib/class_list_macros.hpp>
#include <random>

namespace distag_robot {

using namespace std::chrono_literals;

constexpr int kInputs = 4, kWidth = 32, kBatch = 32;
constexpr long kMemory = 4096;                          // observations
constexpr long kFresh = 2, kRetry = 50, kReport = 100;  // ticks
const ros::Duration kTick(0.01);

using State = std::array<float, kInputs>;  // place and angle, and their speeds, scaled

// Subscribes "observation" (a State), publishes "force" (-1 to 1). Callbacks of one nodelet run one at a time.
class Robot : public nodelet::Nodelet {
 public:
  // Leaves in whatever step it is: futures complete in the shutdown.
  ~Robot() override {
    timer_.stop();  // waits for a callback that runs
    observations_.shutdown();
    is_leaving_ = true;
    distag::status err;
    worker_.shutdown(1s, err);
  }

 private:
  void onInit() override {
    distag::worker_options options;  // rank, size and address: from distag run, or from the nodelet's parameters
    options.name = "robot";
    options.executor = distag::executor::host;
    if (getPrivateNodeHandle().getParam("rendezvous", options.rendezvous)) options.world_size = 2;
    worker_ = distag::worker(options);
    weight_ = distag::randn(100, {kWidth, kInputs}).requires_grad(true);
    bias_ = distag::zeros({kWidth}).requires_grad(true);
    worker_.start_async(30s).on_done([this](const distag::future<void> &started) {
      distag::status err;
      started.get(err);
      is_started_ = err.ok();
      NODELET_ERROR_COND(err && !is_leaving_, "robot: does not train: load this nodelet again with its learner: %s",
                         err.message());
    });
    force_ = getNodeHandle().advertise<std_msgs::Float32>("force", 1);
    observations_ = getNodeHandle().subscribe("observation", 1, &Robot::observe, this);
    timer_ = getNodeHandle().createTimer(kTick, [this](const ros::TimerEvent &) { tick(); });
  }

  void tick() {
    ++ticks_;
    if (is_started_ && !context_ && ticks_ >= next_try_ && seen_ >= kBatch) begin_step();
    distag::status err;
    worker_.poll(0, 1ms, err);  // never waits
    if (ticks_ % kReport == 0 && steps_ > 0) {
      NODELET_INFO("robot: frame %ld, step %ld, loss %.4f", ticks_, steps_, last_loss_);
    }
  }

  // ---- The policy, and the regulator that it learns from. ----

  // The policy's first layer, then a call of the rest: [N, 4] to [N, 1].
  template <class Caller>
  distag::future<distag::tensor> ask(const Caller &caller, const std::vector<float> &states) {
    const auto count = static_cast<std::int64_t>(states.size()) / kInputs;
    const auto x = distag::tensor::of(states, {count, kInputs});
    return caller.template call_async<distag::tensor>("learner", "forward", {x.linear(weight_, bias_).tanh()});
  }

  void observe(const std_msgs::Float32MultiArray &message) {
    if (message.data.size() != kInputs) {
      NODELET_ERROR_THROTTLE(1, "robot: an observation of %zu numbers is ignored: publish %d", message.data.size(),
                             kInputs);
      return;
    }
    State state;
    std::copy(message.data.begin(), message.data.end(), state.begin());
    const float force = std::tanh(0.25f * state[0] + 1.2f * state[1] + 0.8f * state[2] + 0.75f * state[3]);
    states_[seen_ % kMemory] = state;
    forces_[seen_++ % kMemory] = force;
    const bool is_fresh = answered_at_ > 0 && ticks_ - answered_at_ <= kFresh;
    std_msgs::Float32 given;
    given.data = is_fresh ? answer_ : force;
    force_.publish(given);
    if (!is_started_ || is_lost_ || is_asking_) return;
    try {
      is_asking_ = true;
      const long asked_at = ticks_;
      ask(worker_, message.data).on_done([this, asked_at](const distag::future<distag::tensor> &done) {
        is_asking_ = false;
        distag::status err;
        const auto answer = done.get(err);
        if (err) return;
        const auto learned = static_cast<float>(answer.item(err));
        if (!err) answer_ = learned, answered_at_ = asked_at;
      });
    } catch (const distag::error &) {
      is_asking_ = false;  // a step of training says why
    }
  }

  // ---- A step of training: the learner's answer, the backward pass and the optimizer's step, a future for each. ----

  void begin_step() {
    try {
      if (!optimizer_) {  // its state at the learner goes with the learner
        const distag::rref parameters = worker_.remote("learner", "parameters");  // they stay there
        optimizer_ = distag::optimizer(worker_, "adam", {weight_, bias_, parameters}, {{"lr", 0.005}});
      }
      std::vector<float> states, forces;
      std::uniform_int_distribution<long> any(0, std::min(seen_, kMemory) - 1);
      for (int i = 0; i < kBatch; ++i) {
        const long one = any(random_);
        states.insert(states.end(), states_[one].begin(), states_[one].end());
        forces.push_back(forces_[one]);
      }
      targets_ = distag::tensor::of(forces, {kBatch, 1});
      context_ = distag::context(worker_);
      ask(context_, states).on_done([this](const auto &answer) {
        go_on([&] {
          const distag::tensor loss = answer.get().mse_loss(targets_);
          last_loss_ = loss.item();
          context_.backward_async(loss).on_done([this](const auto &done) {  // through both processes
            go_on([&] {
              done.get();
              optimizer_.step_async(context_).on_done([this](const auto &stepped) {  // at both
                go_on([&] { stepped.get(), end_step(nullptr); });
              });
            });
          });
        });
      });
    } catch (const distag::error &error) {
      end_step(&error);
    }
  }

  template <class Phase>
  void go_on(Phase phase) {
    try {
      phase();
    } catch (const distag::error &error) {
      end_step(&error);
    }
  }

  // Without the learner the robot goes on, and says so once.
  void end_step(const distag::error *error) {
    context_ = distag::context();
    if (error == nullptr) {
      NODELET_INFO_COND(is_lost_, "robot: trains again");
      ++steps_, is_lost_ = false;
    } else if (!is_leaving_) {
      NODELET_INFO_COND(!is_lost_, "robot: goes on without the learner: %s", error->name());
      optimizer_ = distag::optimizer(), is_lost_ = true, next_try_ = ticks_ + kRetry;
    }
  }

  distag::worker worker_;
  distag::tensor weight_, bias_;  // the first layer
  distag::optimizer optimizer_;   // steps all layers, here and there; empty until the learner is known
  distag::context context_;       // of the step under way; empty between two
  distag::tensor targets_;
  bool is_started_ = false, is_lost_ = false, is_asking_ = false, is_leaving_ = false;
  long ticks_ = 0, steps_ = 0, seen_ = 0, next_try_ = 0, answered_at_ = 0;
  float answer_ = 0;
  double last_loss_ = 0;
  std::array<State, kMemory> states_;
  std::array<float, kMemory> forces_;  // the regulator's force in each of states_
  std::mt19937 random_{1};
  ros::Publisher force_;
  ros::Subscriber observations_;
  ros::Timer timer_;
};

// The cart with its pole: subscribes "force", publishes "observation". A push now and then; a pole that fell is stood
// up.
class Cart : public nodelet::Nodelet {
  void onInit() override {
    observation_ = getNodeHandle().advertise<std_msgs::Float32MultiArray>("observation", 1);
    force_ = getNodeHandle().subscribe<std_msgs::Float32>(
        "force", 1, [this](const std_msgs::Float32ConstPtr &given) { acceleration_ = 10 * given->data; });
    timer_ = getNodeHandle().createTimer(kTick, [this](const ros::TimerEvent &) { tick(); });
  }

  void tick() {
    const double dt = kTick.toSec();
    if (++ticks_ % 50 == 0) turn_ += push_(random_);
    speed_ += (acceleration_ - speed_) * dt;
    turn_ += (9.81 * std::sin(angle_) - acceleration_ * std::cos(angle_)) * dt;
    place_ += speed_ * dt, angle_ += turn_ * dt;
    if (std::abs(place_) > 2 || std::abs(angle_) > 0.6) place_ = speed_ = angle_ = turn_ = 0;
    std_msgs::Float32MultiArray message;
    for (const double each : {2 * place_, 5 * angle_, speed_, 2 * turn_})
      message.data.push_back(static_cast<float>(each));
    observation_.publish(message);
  }

  double place_ = 0, angle_ = 0.1, speed_ = 0, turn_ = 0, acceleration_ = 0;
  long ticks_ = 0;
  std::mt19937 random_{2};
  std::normal_distribution<double> push_{0, 0.5};
  ros::Publisher observation_;
  ros::Subscriber force_;
  ros::Timer timer_;
};

}  // namespace distag_robot

PLUGINLIB_EXPORT_CLASS(distag_robot::Robot, nodelet::Nodelet)
PLUGINLIB_EXPORT_CLASS(distag_robot::Cart, nodelet::Nodelet)
