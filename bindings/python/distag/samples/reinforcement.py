"""Batched reinforcement learning: the agent answers both observers with one forward pass, then learns from what they
played. The rank is 0 for the agent, 1 and 2 for observers; `reinforcement.py` prints the losses."""
# mypy: allow-untyped-defs, allow-untyped-calls
import math
import threading

import distag
from distag import float64, optim

OBSERVERS, STEPS, EPISODES = 2, 12, 4


def weights(rows, columns):
    return ((distag.arange(0, rows * columns, dtype=float64) * 0.7).sin() * 0.5).reshape(rows, columns).requires_grad_()


class Agent:
    """Its policy has one linear layer; a batch has the states of all observers, in the order of their places."""

    def __init__(self):
        self.weight = weights(2, 3)
        self.lock = threading.Lock()
        self.waiting = {}
        self.losses, self.rewards = [], []

    def choose(self):
        """One pass for all states: the likelier action, and minus its log probability for the loss."""
        states = distag.tensor([self.waiting[place][0] for place in range(OBSERVERS)], float64)
        logits = distag.linear(states, self.weight)
        actions = logits.argmax(1)
        self.losses.append(distag.cross_entropy(logits, actions, reduction="none"))
        self.rewards.append([self.waiting[place][2] for place in range(OBSERVERS)])
        return actions.tolist()


@distag.function
def agent():
    return AGENT


@distag.function
def select_action(agent, place, state, reward):
    """Is answered when all observers have asked."""
    agent = agent.local()
    with agent.lock:
        agent.waiting[place] = (state, distag.current_call().defer(), reward)
        if len(agent.waiting) < OBSERVERS:
            return
        for (_, reply, _), action in zip([agent.waiting[each] for each in range(OBSERVERS)], agent.choose()):
            reply.finish(action)
        agent.waiting = {}


@distag.function
def play(agent, place, episode):
    """One episode: a point that an action pushes to either side is to stay near 0."""
    where, speed, reward = 0.3 * math.sin(place + 2 * episode), 0.0, 0.0
    for _ in range(STEPS):
        action = distag.current_call().worker.call("agent", "select_action", agent, place, [where, speed, 1.0], reward)
        speed += 0.1 if action == 1 else -0.1
        where += speed
        reward = 1.0 - abs(where)


def learn(worker):
    reference = worker.remote("agent", "agent")
    sgd = optim.SGD(None, [AGENT.weight], lr=0.01)
    for episode in range(EPISODES):
        distag.wait_all([worker.call_async(f"observer{place}", "play", reference, place, episode)
                         for place in range(OBSERVERS)])
        returns = distag.tensor(AGENT.rewards, float64).flip([0]).cumsum(0).flip([0])
        loss = (distag.stack(AGENT.losses) * returns).sum()
        with distag.Context() as context:
            context.backward(loss)
            sgd.step(context)
        AGENT.losses, AGENT.rewards = [], []
        print(f"{loss.item():.9f}", flush=True)


AGENT = Agent()
if __name__ == "__main__":
    with distag.Worker(["agent", "observer0", "observer1"][distag.get_environment().rank]) as worker:
        if worker.rank == 0:
            learn(worker)
