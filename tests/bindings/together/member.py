"""A member of the group in Python: see README.md. usage: member.py RANK SIZE RENDEZVOUS DIGITS FIRST STEPS"""
import csv
import struct
import sys
import zlib

import distag

BATCH, LINES = 32, 1600


def read_digits(path):
    with open(path, encoding="utf-8") as file:
        return [[int(number) for number in line] for line in csv.reader(file)]


def train_step(worker, data, turn, number, begin):
    lines = data[begin:begin + BATCH]
    x = distag.tensor([[pixel / 16 for pixel in line[:-1]] for line in lines], distag.float32)
    with worker.context() as context:
        for rank in range(worker.world_size):
            x = worker.call(f"layer{rank}", "forward", x)
        loss = distag.cross_entropy(x, distag.tensor([line[-1] for line in lines], distag.int64))
        context.backward(loss)
        sums = [worker.call(f"layer{rank}", "step") for rank in range(worker.world_size)]
    print(turn, number, struct.pack(">f", loss.item()).hex(), *sums, flush=True)


def parcel(rank, number):
    """What is sent there and back."""
    return [[rank, number, 2**53 + 1], {"from": f"layer{rank}", "number": number},
            f"Grüße aus Schicht {rank}, Nr. {number}: äöüß €", bytes((i + 31 * rank + number) % 256 for i in range(256)) * 4096,
            distag.randn(1000 + 100 * rank + number, (8, 8))]


def content(parcel):
    return parcel[:-1], parcel[-1].shape, parcel[-1].tobytes()


def exchange(worker, count):
    calls = [worker.call_async(f"layer{number % worker.world_size}", "echo", parcel(worker.rank, number))
             for number in range(count * worker.world_size) if number % worker.world_size != worker.rank]
    answers = [content(call.result()) for call in calls]
    print("exchanged", sum(answer == content(parcel(worker.rank, answer[0][0][1])) for answer in answers), flush=True)
    sys.stdin.read()


def main():
    rank, size, first, steps = (int(sys.argv[index]) for index in (1, 2, 5, 6))
    data = read_digits(sys.argv[4])
    shape = (10 if rank == size - 1 else 32, 64 if rank == 0 else 32)
    weight = (distag.randn(100 + rank, shape) * 0.2).requires_grad_()
    bias = distag.zeros(shape[:1]).requires_grad_()

    def forward(x):
        y = distag.linear(x, weight, bias)
        return y if rank == size - 1 else y.relu()

    def step():
        context = distag.current_call().context
        sgd.step(context)
        gradients = context.gradients()
        crc = 0
        for each in (weight, gradients[weight], bias, gradients[bias]):
            crc = zlib.crc32(each.tobytes(), crc)
        return crc

    worker = distag.Worker(f"layer{rank}", rank=rank, world_size=size, rendezvous=sys.argv[3],
                           functions={"forward": forward, "step": step, "echo": lambda x: x})
    sgd = distag.optim.SGD(worker, [weight, bias], lr=0.1, momentum=0.9)
    try:
        worker.start(30)
        if first < 0:
            exchange(worker, steps)
        for turn in range(size if first >= 0 else 0):
            if (first + turn) % size == rank:
                for number in range(steps):
                    train_step(worker, data, turn, number, BATCH * (steps * turn + number) % LINES)
            worker.all_gather(None, timeout=240)
        worker.shutdown(120)
    except distag.DistagError as failure:
        print("failed", failure.code, failure.message, flush=True)
        for line in sys.stdin:
            for number in range(int(line)):
                train_step(worker, data, 0, number, BATCH * number)
        worker.close()
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
