#!/usr/bin/env python3
"""`moonpool demo` and `moonpool bench` as a user runs them, on contexts that are short enough for a test.

No time is compared with anything: only what must hold on a slow and busy machine too.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import unittest

import model_files

MOONPOOL = os.environ["MOONPOOL_TARGET_MOONPOOL"]
RUN_TIMEOUT_S = 500
# One thread: two that wait for each other get nowhere on a machine that has other things to do.
FILES = ["--threads", "1", "--python", os.environ["MOONPOOL_PYTHON"], "--model", model_files.plain_attention()]


def run(*arguments, environment=None):
    return subprocess.run([MOONPOOL, *arguments], capture_output=True, text=True, timeout=RUN_TIMEOUT_S,
                          env={**os.environ, **(environment or {})}, check=False)


class Demo(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.json = os.path.join(self.folder.name, "result.json")

    def test_the_bus_saves_what_it_must_and_changes_no_text(self):
        agents, context = 3, 300
        done = run("demo", "--context-tokens", str(context), "--agents", str(agents), "--predict", "8", "--json",
                   self.json, *FILES)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.json, encoding="utf-8") as file:
            result = json.load(file)
        self.assertEqual(set(result), {"agents", "context_tokens", "tail_tokens", "without_bus", "own", "with_bus",
                                       "ideal_wall_ms", "texts_equal"}, result)
        self.assertEqual((result["agents"], result["context_tokens"]), (agents, context))
        self.assertIs(result["texts_equal"], True, done.stdout)
        self.assertEqual(result["with_bus"]["hits"], agents - 1, done.stdout)
        self.assertEqual(result["without_bus"]["hits"], 0)
        self.assertEqual(result["own"]["hits"], agents - 2, "two servers begin empty")
        self.assertLessEqual(result["with_bus"]["prefill_tokens"], context + agents * result["tail_tokens"] + agents)
        self.assertGreater(result["without_bus"]["prefill_tokens"], agents * context)
        for column in ("without_bus", "own", "with_bus"):
            self.assertEqual(set(result[column]),
                             {"prefill_tokens", "ttft_ms_mean", "ttft_ms_p95", "wall_ms", "hits"})
            self.assertGreater(result[column]["ttft_ms_mean"], 0)
            self.assertGreater(result[column]["wall_ms"], result[column]["ttft_ms_mean"])
        self.assertGreater(result["ideal_wall_ms"], 0)
        self.assertIn("texts equal", done.stdout)
        self.assertIn("bus: erased slots", done.stderr)

    def test_three_agents_at_once_evaluate_one_prefix_once(self):
        done = run("bench", "flight", "--context-tokens", "600", "--predict", "4", "--repeats", "2", "--json",
                   self.json, *FILES)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.json, encoding="utf-8") as file:
            rows = {row["name"]: row for row in json.load(file)["rows"]}
        self.assertEqual(set(rows), {"flight.prefills", "flight.ttft"})
        self.assertEqual(rows["flight.prefills"]["value"], 1, done.stdout)
        self.assertEqual(set(rows["flight.ttft"]), {"name", "value", "unit", "reference", "ratio", "bar", "pass"})

    def test_interrupted_it_leaves_nothing(self):
        with subprocess.Popen([MOONPOOL, "demo", "--context-tokens", "2000", *FILES], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as process:
            for line in process.stderr:
                if "none: erased slots" in line:  # servers and bus run, an agent is being served
                    break
            children = self.children_of(process.pid)
            self.assertEqual(len(children), 3, "two servers and a bus")
            folders = set()
            for child in children:
                with open(f"/proc/{child}/cmdline", encoding="utf-8") as file:
                    folders.update(re.findall(r"[^\0=,]*/moonpool-swarm-[0-9a-f]+", file.read()))
            self.assertEqual(len(folders), 1, folders)
            (folder,) = folders
            self.assertTrue(os.path.isdir(folder))
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertFalse(os.path.exists(folder), said)
        for child in children:
            self.assertFalse(os.path.exists(f"/proc/{child}"), f"process {child} lives on")

    def test_without_a_set_up_it_names_the_next_step(self):
        done = run("demo", environment={"MOONPOOL_STATE": self.folder.name})
        self.assertEqual(done.returncode, 1)
        self.assertIn("make setup", done.stderr)

    @staticmethod
    def children_of(pid):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return file.read().split()


if __name__ == "__main__":
    unittest.main()
