"""The pattern of distag.samples.reinforcement with PyTorch's API: the same losses come out."""
import math
import os
import threading

import torch
import torch.distributed.rpc as rpc

OBSERVERS, STEPS, EPISODES = 2, 12, 4


def weights(rows, columns):
    values = (torch.arange(0, rows * columns, dtype=torch.float64) * 0.7).sin() * 0.5
    return torch.nn.Parameter(values.reshape(rows, columns))


class Agent:
    """Its policy has one linear layer; a batch has the states of all observers, in the order of their places."""

    def __init__(self):
        self.weight = weights(2, 3)
        self.lock = threading.Lock()
        self.waiting = {}
        self.future = torch.futures.Future()
        self.losses, self.rewards = [], []

    def choose(self):
        """One pass for all states: the likelier action, and minus its log probability for the loss."""
        states = torch.tensor([self.waiting[place][0] for place in range(OBSERVERS)], dtype=torch.float64)
        logits = torch.nn.functional.linear(states, self.weight)
        actions = logits.argmax(1)
        self.losses.append(torch.nn.functional.cross_entropy(logits, actions, reduction="none"))
        self.rewards.append([self.waiting[place][1] for place in range(OBSERVERS)])
        return actions.tolist()


def agent():
    return AGENT


@rpc.functions.async_execution
def select_action(agent, place, state, reward):
    """Is answered when all observers have asked."""
    agent = agent.local_value()
    with agent.lock:
        agent.waiting[place] = (state, reward)
        mine = agent.future.then(lambda future: future.wait()[place])
        if len(agent.waiting) == OBSERVERS:
            future, agent.future = agent.future, torch.futures.Future()
            actions = agent.choose()
            agent.waiting = {}
            future.set_result(actions)
    return mine


def play(agent, place, episode):
    """One episode: a point that an action pushes to either side is to stay near 0."""
    where, speed, reward = 0.3 * math.sin(place + 2 * episode), 0.0, 0.0
    for _ in range(STEPS):
        action = rpc.rpc_sync("agent", select_action, args=(agent, place, [where, speed, 1.0], reward))
        speed += 0.1 if action == 1 else -0.1
        where += speed
        reward = 1.0 - abs(where)


def learn():
    reference = rpc.remote("agent", agent)
    sgd = torch.optim.SGD([AGENT.weight], lr=0.01)
    for episode in range(EPISODES):
        torch.futures.wait_all([rpc.rpc_async(f"observer{place}", play, args=(reference, place, episode))
                                for place in range(OBSERVERS)])
        returns = torch.tensor(AGENT.rewards, dtype=torch.float64).flip([0]).cumsum(0).flip([0])
        loss = (torch.stack(AGENT.losses) * returns).sum()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        AGENT.losses, AGENT.rewards = [], []
        print(f"{loss.item():.9f}", flush=True)


AGENT = Agent()
if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    rpc.init_rpc(["agent", "observer0", "observer1"][rank], rank=rank, world_size=3)
    if rank == 0:
        learn()
    rpc.shutdown()
