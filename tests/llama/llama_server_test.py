"""The fixture that all tests of real servers stand on: does it do what they take for granted?

That it leaves no orphan matters most: a server that outlives its test eats a core for the rest of the run.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import unittest

import llama_server
import model_files
from llama_server import LlamaServer, ServerFailed

HANG_LIMIT_S = 60


def ended(pidfd):
    """Whether the process behind the descriptor has ended, waiting for it if need be."""
    return bool(select.select([pidfd], [], [], HANG_LIMIT_S)[0])


def run_in_child(code):
    """A Python process that knows the fixture; its stdout is a pipe of text."""
    return subprocess.Popen([sys.executable, "-c", "import llama_server, sys, threading, time\n" + code],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class LlamaServerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="moonpool_llama_server_")
        self.addCleanup(self.folder.cleanup)
        self.slots = os.path.join(self.folder.name, "slots")
        self.model = model_files.plain_attention()

    def start(self, **options):
        server = LlamaServer(self.model, self.slots, **options).start()
        self.addCleanup(server.stop)
        return server

    def test_serves_what_the_bus_asks_for(self):
        server = self.start(n_parallel=2, n_ctx=1024)
        self.assertEqual(server.call("GET", "/health"), (200, {"status": "ok"}))
        self.assertEqual(server.call("GET", "/props")[1]["total_slots"], 2)
        self.assertEqual([slot["id"] for slot in server.call("GET", "/slots")[1]], [0, 1])
        self.assertEqual(server.call("GET", "/lora-adapters"), (200, []))
        self.assertEqual(server.call("GET", "/metrics")[0], 200)

    def test_moves_a_prompt_between_slots(self):
        server = self.start(n_parallel=2, n_ctx=1024)
        tokens = server.tokenize("The lighthouse keeper counted the ships that passed before dawn.")
        server.complete(tokens, id_slot=0, n_predict=0)
        status, saved = server.slot_action(0, "save", "a.bin")
        self.assertEqual((status, saved["n_saved"]), (200, len(tokens)))
        self.assertEqual(os.path.getsize(os.path.join(self.slots, "a.bin")), saved["n_written"])
        self.assertEqual(server.slot_action(0, "erase")[1]["n_erased"], len(tokens))
        self.assertEqual(server.slot_action(1, "restore", "a.bin")[1]["n_restored"], len(tokens))
        timings = server.complete(tokens, id_slot=1, n_predict=1)["timings"]
        self.assertEqual((timings["cache_n"], timings["prompt_n"]), (len(tokens) - 1, 1))

    def test_an_erased_slot_leaves_nothing_in_the_servers_own_cache(self):
        server = self.start(n_ctx=1024)
        tokens = server.tokenize("A prompt that must be evaluated twice, once before and once after the erase.")
        server.complete(tokens, id_slot=0, n_predict=0)
        server.slot_action(0, "erase")
        self.assertEqual(server.complete(tokens, id_slot=0, n_predict=0)["timings"]["prompt_n"], len(tokens))

    def test_options_reach_the_server(self):
        server = self.start(n_parallel=3, n_ctx=768, api_key="secret", endpoint_slots=False, metrics=False,
                            extra={"model_alias": ["a-name"]})
        self.assertEqual(llama_server.http_call(server.url, "GET", "/slots")[0], 401)
        self.assertEqual(server.call("GET", "/slots")[0], 501)
        self.assertEqual(server.call("GET", "/metrics")[0], 501)
        props = server.call("GET", "/props")[1]
        self.assertEqual((props["total_slots"], props["default_generation_settings"]["n_ctx"]), (3, 256))

    def test_cache_types_reach_the_server(self):
        sizes = {}
        for cache_type in ("f16", "q8_0"):
            with LlamaServer(self.model, self.slots, cache_type_k=cache_type, cache_type_v=cache_type) as server:
                server.complete("one two three four", id_slot=0, n_predict=0)
                sizes[cache_type] = server.slot_action(0, "save", cache_type + ".bin")[1]["n_written"]
        self.assertLess(sizes["q8_0"], 0.6 * sizes["f16"])

    def test_without_a_slot_folder_slot_actions_are_refused(self):
        with LlamaServer(self.model, log=os.path.join(self.folder.name, "log")) as server:
            self.assertEqual(server.slot_action(0, "save", "a.bin")[0], 501)

    def test_several_servers_side_by_side_one_killed_by_pid(self):
        first = self.start()
        second = LlamaServer(self.model, os.path.join(self.folder.name, "slots2")).start()
        self.addCleanup(second.stop)
        pidfd = os.pidfd_open(first.pid)
        self.addCleanup(os.close, pidfd)
        os.kill(first.pid, signal.SIGKILL)
        self.assertTrue(ended(pidfd))
        self.assertFalse(first.alive())
        self.assertEqual(second.call("GET", "/health")[0], 200)

    def test_a_frozen_server_can_be_stopped(self):
        server = self.start()
        os.kill(server.pid, signal.SIGSTOP)
        server.stop()
        self.assertFalse(server.alive())

    def test_comes_back_on_the_same_port(self):
        server = self.start()
        port = int(server.url.rpartition(":")[2])
        server.kill()
        again = self.start(port=port)
        self.assertEqual(again.url, server.url)

    def test_a_failed_start_shows_the_log(self):
        broken = os.path.join(self.folder.name, "broken.gguf")
        with open(broken, "wb") as file:
            file.write(b"GGUF, or so it says")
        server = LlamaServer(broken, self.slots)
        with self.assertRaisesRegex(ServerFailed, r"(?s)broken\.gguf.*loading model"):
            server.start()
        self.assertFalse(server.alive())

    def test_an_unknown_option_is_refused(self):
        with self.assertRaisesRegex(TypeError, "n_paralel"):
            LlamaServer(self.model, self.slots, n_paralel=2)

    def test_dies_with_a_parent_that_is_killed(self):
        parent = run_in_child(
            f"server = llama_server.LlamaServer({self.model!r}, {self.slots!r}).start()\n"
            "print(server.pid, flush=True)\nsys.stdin.read()")
        self.addCleanup(parent.communicate)
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        self.addCleanup(os.close, pidfd)
        parent.kill()
        self.assertTrue(ended(pidfd))

    def test_outlives_the_thread_that_started_it_but_not_the_process(self):
        parent = run_in_child(
            f"server = llama_server.LlamaServer({self.model!r}, {self.slots!r})\n"
            "thread = threading.Thread(target=server.start)\nthread.start()\nthread.join()\n"
            "print(server.pid, server.call('GET', '/health')[0], flush=True)\nsys.stdin.read()")
        self.addCleanup(parent.communicate)
        pid, health = parent.stdout.readline().split()
        pidfd = os.pidfd_open(int(pid))
        self.addCleanup(os.close, pidfd)
        self.assertEqual(health, "200")
        parent.kill()
        self.assertTrue(ended(pidfd))


class CommandTest(unittest.TestCase):
    """The same server, started by a program in another language."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="moonpool_llama_server_")
        self.addCleanup(self.folder.cleanup)

    def start(self, *flags):
        command = [sys.executable, llama_server.__file__, "--model", model_files.plain_attention(), "--slot-dir",
                   os.path.join(self.folder.name, "slots"), *flags]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process, json.loads(process.stdout.readline())

    def test_prints_one_line_and_ends_on_sigterm(self):
        process, ready = self.start("--np", "2", "--log", os.path.join(self.folder.name, "log"))
        self.assertEqual(ready["pid"], process.pid)
        self.assertEqual(llama_server.http_call(ready["url"], "GET", "/props")[1]["total_slots"], 2)
        process.terminate()
        self.assertEqual(process.wait(HANG_LIMIT_S), -signal.SIGTERM)
        self.assertEqual(process.stdout.read(), b"")
        self.assertGreater(os.path.getsize(ready["log"]), 0)

    def test_ends_when_its_stdin_is_closed(self):
        process, _ = self.start("--exit-on-stdin-close")
        process.stdin.close()
        process.stdin = None
        self.assertEqual(process.wait(HANG_LIMIT_S), 0)


if __name__ == "__main__":
    unittest.main()
