"""Do real servers go on from rewritten state files exactly as from their own?

The measure is the reference of docs/decisions ("the same text"): the same server, slot erased, evaluates the first n
tokens and then the whole prompt; n is what the completion after the restore took from the cache. Greedy tokens must be
equal. A cold run is no measure: it evaluates the prompt in other batches and rounds differently.
"""

import json
import os
import subprocess
import tempfile
import unittest

import model_files
from llama_server import LlamaServer

TOOL = os.environ["MOONPOOL_TARGET_KVSTATE_TOOL"]
BLOCK = 256
PREDICTED = 8
SLOT_CELLS = 512

TEXT = """The harbour master kept two ledgers. In the first he wrote what the ships declared, in the second what his
own men had counted on the quay, and every evening he compared them line by line under a green lamp. Most days they
agreed. On the days they did not, he walked down to the water, asked for the hatch to be opened, and looked. He had
learned early that paper is patient and that a captain in a hurry remembers the number he would like to be true. The
younger clerks thought the walk a waste of boots. They proposed a rule by which small differences were rounded away,
and a bigger lamp. He listened, thanked them, and went on walking, because once, in the winter of the long fog, a
difference of three barrels had been the only sign that a whole cargo was not what its papers said it was. """


def tool(*arguments):
    """Runs kvstate_tool; returns (accepted, its answer)."""
    done = subprocess.run([TOOL, *map(str, arguments)], stdout=subprocess.PIPE, check=False, timeout=60)
    if done.returncode not in (0, 1):
        raise AssertionError(f"kvstate_tool {arguments}: status {done.returncode}")
    return done.returncode == 0, json.loads(done.stdout)


class KvStateServerTest(unittest.TestCase):
    def setUp(self):
        # A slot file is written once and read once: tmpfs is where it belongs, if there is one.
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(prefix="moonpool_kvstate_", dir=parent)
        self.addCleanup(self.folder.cleanup)
        self.slots = os.path.join(self.folder.name, "slots")
        os.mkdir(self.slots)
        self.files = 0

    def start(self, model=None, n_parallel=1, **options):
        """A running server, which ends with the test at the latest."""
        options.setdefault("n_ctx", SLOT_CELLS * n_parallel)
        server = LlamaServer(model or model_files.plain_attention(), self.slots, n_parallel=n_parallel, **options)
        server.start()
        self.addCleanup(server.stop)
        return server

    def path(self, name):
        return os.path.join(self.slots, name)

    def fresh_name(self):
        self.files += 1
        return f"file{self.files}.bin"

    def prompt(self, server, count):
        tokens = server.tokenize(TEXT * (1 + count // 150))
        self.assertGreaterEqual(len(tokens), count)
        return tokens[:count]

    def save(self, server, slot):
        name = self.fresh_name()
        status, answer = server.slot_action(slot, "save", name)
        self.assertEqual(status, 200, answer)
        self.assertEqual(os.path.getsize(self.path(name)), answer["n_written"])
        return name

    def restore(self, server, slot, name, count):
        status, answer = server.slot_action(slot, "restore", name)
        self.assertEqual((status, answer.get("n_restored")), (200, count), answer)

    def complete(self, server, slot, tokens):
        """The greedy continuation, and how many tokens of the prompt came from the cache."""
        answer = server.complete(tokens, id_slot=slot, n_predict=PREDICTED, return_tokens=True, ignore_eos=True)
        timings = answer["timings"]
        self.assertEqual(timings["cache_n"] + timings["prompt_n"], len(tokens))
        return answer["tokens"], timings["cache_n"]

    def reference(self, server, slot, tokens, cached):
        server.slot_action(slot, "erase")
        if cached > 0:
            server.complete(tokens[:cached], id_slot=slot, n_predict=0)
        generated, cache_n = self.complete(server, slot, tokens)
        self.assertEqual(cache_n, cached)
        return generated

    def rewrite(self, name, streams, slot, tokens):
        target = self.fresh_name()
        stream = slot if streams > 1 else 0
        accepted, answer = tool("rewrite", self.path(name), self.path(target), "--streams", streams, "--stream", stream,
                                "--seq", slot, "--tokens", tokens)
        self.assertTrue(accepted, answer)
        self.assertEqual(len(answer["tokens"]), tokens)
        return target

    def assert_continues_from_cuts(self, kv_type):
        """One file of an -np 1 server, cut at every kind of place and restored on servers of every shape."""
        types = {"cache_type_k": kv_type, "cache_type_v": kv_type}
        server = self.start(**types)
        prompt = self.prompt(server, BLOCK + 8)
        server.complete(prompt, id_slot=0, n_predict=0)
        whole = self.save(server, 0)
        server.stop()
        everywhere = (0, 1, 97, BLOCK - 1, BLOCK, BLOCK + 1, len(prompt))
        shapes = ((1, False, everywhere), (2, False, everywhere), (4, False, (1, 97, BLOCK)), (2, True, (1, 97, BLOCK)))
        for n_parallel, unified, cuts in shapes:
            cells = SLOT_CELLS if unified else SLOT_CELLS * n_parallel
            slot = n_parallel - 1
            server = self.start(n_parallel=n_parallel, kv_unified=unified, n_ctx=cells, **types)
            for cut in cuts:
                with self.subTest(kv_type=kv_type, n_parallel=n_parallel, unified=unified, cut=cut):
                    name = self.rewrite(whole, 1 if unified else n_parallel, slot, cut)
                    server.slot_action(slot, "erase")
                    self.restore(server, slot, name, cut)
                    generated, cached = self.complete(server, slot, prompt)
                    self.assertEqual(cached, min(cut, len(prompt) - 1))
                    self.assertEqual(generated, self.reference(server, slot, prompt, cached))
            server.stop()

    def test_continues_from_any_cut_with_f16(self):
        self.assert_continues_from_cuts("f16")

    def test_continues_from_any_cut_with_q8_0(self):
        self.assert_continues_from_cuts("q8_0")

    def test_a_server_refuses_what_was_not_rewritten(self):
        """The reason for rewriting: another -np refuses the file, and the slot loses what it had."""
        server = self.start()
        prompt = self.prompt(server, 20)
        server.complete(prompt, id_slot=0, n_predict=0)
        name = self.save(server, 0)
        server.stop()
        server = self.start(n_parallel=2)
        self.assertEqual(server.slot_action(0, "restore", name)[0], 400)
        self.restore(server, 0, self.rewrite(name, 2, 0, 20), 20)

    def test_reads_the_cells_of_a_shared_cache_in_any_order(self):
        """Two conversations share one cache; the first goes away, the second grows into its cells."""
        server = self.start(n_parallel=2, kv_unified=True, n_ctx=256)
        prompt = self.prompt(server, 220)
        server.complete(self.prompt(server, 100)[::-1], id_slot=0, n_predict=0)
        server.complete(prompt[:120], id_slot=1, n_predict=0)
        server.slot_action(0, "erase")
        server.complete(prompt[:200], id_slot=1, n_predict=0)
        name = self.save(server, 1)
        accepted, state = tool("parse", self.path(name), "plain")
        self.assertTrue(accepted, state)
        self.assertEqual(state["tokens"], prompt[:200])
        self.assertFalse(state["attention"][0]["in_order"], "the cache did not wrap around: the test shows nothing")
        server.stop()

        server = self.start(n_parallel=2)
        for cut in (150, 200):
            server.slot_action(1, "erase")
            self.restore(server, 1, self.rewrite(name, 2, 1, cut), cut)
            generated, cached = self.complete(server, 1, prompt)
            self.assertEqual(cached, cut)
            # The rows were computed 120 and 80 tokens at a time: the reference has to split the prompt there, too.
            server.slot_action(1, "erase")
            server.complete(prompt[:120], id_slot=1, n_predict=0)
            server.complete(prompt[:cut], id_slot=1, n_predict=0)
            self.assertEqual(generated, self.complete(server, 1, prompt)[0])

    def test_restores_beside_another_conversation_in_a_shared_cache(self):
        """At other cell offsets an f16 cache sums in another order: the most likely token is the same, and
        log-probabilities differ by no more than rounding."""
        server = self.start(n_parallel=2, kv_unified=True, n_ctx=1024)
        prompt = self.prompt(server, 200)
        server.complete(prompt[:150], id_slot=0, n_predict=0)
        name = self.save(server, 0)
        server.slot_action(0, "erase")

        def top(slot):
            answer = server.complete(prompt, id_slot=slot, n_predict=1, n_probs=10)
            self.assertEqual(answer["timings"]["cache_n"], 150)
            return {entry["id"]: entry["logprob"] for entry in answer["completion_probabilities"][0]["top_logprobs"]}

        server.complete(prompt[:150], id_slot=0, n_predict=0)
        expected = top(0)
        server.complete(self.prompt(server, 90)[::-1], id_slot=0, n_predict=0)
        self.restore(server, 1, name, 150)
        seen = top(1)
        self.assertEqual(max(seen, key=seen.get), max(expected, key=expected.get))
        common = seen.keys() & expected.keys()
        self.assertGreaterEqual(len(common), 8)
        self.assertLess(max(abs(seen[token] - expected[token]) for token in common), 0.6)

    def test_takes_the_file_of_any_slot_into_any_slot(self):
        """Why the layout descriptor leaves slot traces out, also where files cannot be rewritten."""
        server = self.start(n_parallel=2, flash_attn="off")
        prompt = self.prompt(server, 60)
        server.complete(prompt[:40], id_slot=1, n_predict=0)
        name = self.save(server, 1)
        accepted, state = tool("parse", self.path(name), "plain")
        self.assertTrue(accepted, state)
        self.assertFalse(state["rewritable"])
        self.assertEqual((state["attention"][0]["stream"], state["attention"][0]["sequence_id"]), (1, 1))
        self.restore(server, 0, name, 40)
        generated, cached = self.complete(server, 0, prompt)
        self.assertEqual(cached, 40)
        self.assertEqual(generated, self.reference(server, 0, prompt, 40))

    def test_understands_sliding_window_files(self):
        """A window that has wrapped, checkpoints in the file, generated tokens, a conversation of two turns."""
        server = self.start(model_files.sliding_window(), n_parallel=2, n_ctx=4096)
        prompt = self.prompt(server, 700)
        server.complete(prompt[:600], id_slot=1, n_predict=PREDICTED, ignore_eos=True)
        server.complete(prompt, id_slot=1, n_predict=PREDICTED, ignore_eos=True)
        name = self.save(server, 1)
        accepted, state = tool("parse", self.path(name), "sliding-window")
        self.assertTrue(accepted, state)
        self.assertEqual(state["tokens"][:700], prompt)
        self.assertGreater(state["checkpoints"], 0)
        whole, window = state["attention"]
        self.assertEqual((whole["cells"], whole["position_first"]), (len(state["tokens"]), 0))
        self.assertEqual((window["cells"], window["position_first"]), (512, len(state["tokens"]) - 512))
        self.assertFalse(tool("parse", self.path(name), "plain")[0])
        self.restore(server, 0, name, len(state["tokens"]))

    def test_sizes_and_compares_saves_as_measured(self):
        """The distances on which families of servers are founded: identical servers, another batch split, RoPE."""
        def canary(**options):
            server = self.start(**options)
            prompt = self.prompt(server, BLOCK)
            server.complete(prompt, id_slot=0, n_predict=0)
            name = self.save(server, 0)
            server.stop()
            return self.path(name)

        first = canary()
        accepted, state = tool("parse", first, "plain")
        self.assertTrue(accepted, state)
        # Rows, cell record, token, and a share of 772 bytes of headers.
        self.assertEqual(state["bytes_per_token"], 23040 + 12 + 4 + 4)

        def distance(**options):
            accepted, answer = tool("compare", first, canary(**options), "plain")
            self.assertTrue(accepted, answer)
            return answer

        self.assertEqual(distance(n_parallel=2), {"first_layer_k": 0, "worst_layer": 0})
        batches = distance(n_ubatch=8)
        self.assertLess(batches["first_layer_k"], 0.001)
        self.assertLess(batches["worst_layer"], 0.15)
        self.assertGreater(batches["worst_layer"], 0)
        self.assertAlmostEqual(distance(rope_freq_base=101000.0)["first_layer_k"], 0.0133, delta=0.002)
        self.assertGreater(distance(rope_freq_scale=0.98)["first_layer_k"], 0.3)
        accepted, answer = tool("compare", first, canary(cache_type_k="q8_0", cache_type_v="q8_0"), "plain")
        self.assertEqual((accepted, answer["error"]), (False, "unsupported"))


if __name__ == "__main__":
    unittest.main()
