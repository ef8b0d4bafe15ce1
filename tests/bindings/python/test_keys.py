"""Keys of a group and of workers, as arguments of a worker."""
import queue
import tempfile
import unittest

import distag


def double(x):
    return x * 2


class Keys(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.pairs = {name: distag.create_keys() for name in ("a", "b", "c")}
        self.peers = {name: self.pairs[name].public_key for name in ("a", "b")}

    def worker(self, name, **options):
        worker = distag.Worker(name, rank=("a", "b").index(name), world_size=2, functions=[double], lease=60.0,
                               bind="tcp://127.0.0.1:0", rendezvous=f"file://{self.folder.name}", **options)
        self.addCleanup(worker.close)
        return worker

    def start(self, a, b):
        distag.wait_all([a.start_async(120), b.start_async(120)])

    def end(self, a, b):
        distag.wait_all([a.shutdown_async(120), b.shutdown_async(120)])

    def own(self, name, **options):
        return self.worker(name, secret_key=self.pairs[name].secret_key, peers=self.peers, **options)

    def test_a_pair_does_not_show_its_secret(self):
        pair = distag.create_keys()
        self.assertEqual((len(pair.public_key), len(pair.secret_key)), (40, 40))
        self.assertNotIn(pair.secret_key, repr(pair))
        self.assertNotEqual(pair, distag.create_keys())

    def test_a_group_with_a_key(self):
        a, b = (self.worker(name, group_key="k" * 32) for name in ("a", "b"))
        self.start(a, b)
        self.assertEqual(a.call("b", double, 21), 42)
        self.end(a, b)

    def test_a_key_for_each_worker(self):
        a, b = self.own("a", rendezvous_name="a"), self.own("b", rendezvous_name="a", initiators=["a"])
        self.start(a, b)
        self.assertEqual(a.call("b", double, 21), 42)
        x = distag.tensor([3.0]).requires_grad_()
        with a.context() as context:
            context.backward(a.call("b", double, x).sum())
            self.assertEqual(context.gradients()[x].tolist(), [2.0])
        y = distag.tensor([3.0]).requires_grad_()
        with b.context() as context:
            context.backward(b.call("a", double, y).sum())
            self.assertEqual(context.gradients()[y].tolist(), [2.0])
        self.end(a, b)

    def test_passes_of_others_than_the_initiators_are_denied(self):
        a, b = self.own("a"), self.own("b", initiators=["b"])
        self.start(a, b)
        x = distag.tensor([3.0]).requires_grad_()
        with a.context() as context, self.assertRaises(distag.DistagError) as caught:
            context.backward(a.call("b", double, x).sum())
        self.assertEqual(caught.exception.name, "DENIED")
        self.end(a, b)

    def test_a_key_that_is_taken_off_the_list_is_refused(self):
        news = queue.Queue()
        a, b = self.own("a", on_member=lambda member: news.put((member.name, member.state))), self.own("b")
        self.start(a, b)
        a.set_peers({"a": self.pairs["a"].public_key, "b": self.pairs["c"].public_key})
        with self.assertRaises(distag.DistagError) as caught:
            a.call("b", double, 21)
        self.assertIn(caught.exception.name, ("DENIED", "DISCONNECTED"))
        while news.get(timeout=120) != ("b", "lost"):  # the call may hear of it first
            pass
        self.assertEqual(a.member("b").state, "lost")

    def test_arguments_that_are_none(self):
        for options in ({"secret_key": "short", "peers": self.peers}, {"peers": self.peers}, {"peers": ["a"]},
                        {"secret_key": self.pairs["a"].secret_key, "peers": {"a": "short"}}, {"initiators": "a"},
                        {"group_key": "short"}):
            with self.subTest(options=options), self.assertRaises(distag.UsageError) as caught:
                self.worker("a", **options).start(0.1)
            self.assertNotIn(self.pairs["a"].secret_key, str(caught.exception))
        with self.assertRaises(distag.DistagError) as caught:
            self.worker("a").set_peers(self.peers)
        self.assertEqual(caught.exception.name, "UNSUPPORTED")


if __name__ == "__main__":
    unittest.main()
