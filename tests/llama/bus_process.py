"""The real bus as a child process, with real servers around it, for tests that cross everything.

    with BusProcess(binary, folder, {"a": server_a, "b": server_b}) as bus:
        bus.wait_ready()
        reply = bus.post("/v1/prepare", {"engine": "a", "tokens": [...]})

Not thread-safe but for post(), which any thread may call.
"""

import json
import os
import signal
import subprocess
import time

from llama_server import http_call

READY_TIMEOUT_S = 120.0


class BusProcess:
    """Owns one `moonpool bus` from start() to stop()."""

    def __init__(self, binary, folder, servers, *flags, env=None):
        self.binary = binary
        self.folder = folder
        self.servers = servers
        self.flags = flags
        self.env = env or {}
        self.process = None
        self.url = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def command(self):
        command = [self.binary, "bus", "--state", os.path.join(self.folder, "state"), "--http", "127.0.0.1:0",
                   "--grpc", "none"]
        for name, server in self.servers.items():
            command += ["--engine", f"name={name},url={server.url},slots={server.slot_dir}"]
        return command + list(self.flags)

    def start(self):
        self.log = os.path.join(self.folder, "bus.log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log,
                                            env={**os.environ, **self.env})
        line = self.process.stdout.readline().decode()
        if not line:
            raise AssertionError(f"the bus did not start: {open(self.log, encoding='utf-8').read()[-2000:]}")
        self.ready_line = line
        self.url = "http://" + next(word.split("=", 1)[1] for word in line.split() if word.startswith("http="))
        return self

    def stop(self):
        """SIGTERM, and the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.process.stdout.close()
        return status

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=60)
        self.process.stdout.close()

    def get(self, path):
        return http_call(self.url, "GET", path)

    def post(self, path, body, expect=200):
        status, answer = http_call(self.url, "POST", path, body)
        if status != expect:
            raise AssertionError(f"{path}: {status} {answer}")
        return answer

    def wait_ready(self):
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.get("/readyz")[0] == 200:
                return self
            time.sleep(0.1)
        raise AssertionError(f"not ready: {self.get('/readyz')} {open(self.log, encoding='utf-8').read()[-2000:]}")

    def engines(self):
        """The rows of /v1/stats by engine name."""
        return {engine["name"]: engine for engine in self.get("/v1/stats")[1]["engines"]}


def timings_of(completion):
    """What a Commit reports of a completion."""
    timings = completion["timings"]
    return {"prompt_n": timings["prompt_n"], "cache_n": timings["cache_n"], "prompt_ms": timings["prompt_ms"],
            "predicted_n": timings["predicted_n"]}
