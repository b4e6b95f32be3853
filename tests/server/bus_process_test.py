"""The bus as a process: exclusive starts, restarts after kill -9, signals, readiness, modes (field report B63 and its
class C16; B62 e and f). Every limit here is a hang limit."""

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_llama import FakeLlama  # noqa: E402

BINARY = os.environ["MOONPOOL_BINARY"]
HANG_S = 60.0
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(address, method, path, body=None, headers=None):
    """(status, decoded JSON or text) of one request to HOST:PORT."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}{path}", data=data, method=method,
                                     headers={"Content-Type": "application/json", **(headers or {})})
    try:
        with opener.open(request, timeout=HANG_S) as response:
            status, raw = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, raw = error.code, error.read()
    try:
        return status, json.loads(raw)
    except ValueError:
        return status, raw.decode()


class Bus:
    """One `moonpool bus`. start() waits for its ready line; addresses maps http, grpc-unix, ... to where they are."""

    def __init__(self, *arguments, environment=None, umask=None):
        self.command = [BINARY, "bus", *arguments]
        self.environment = {**{k: v for k, v in os.environ.items() if not k.startswith("MOONPOOL_")},
                            **(environment or {})}
        self.umask = umask
        self.addresses = {}
        self.process = None

    def start(self):
        before = (lambda: os.umask(self.umask)) if self.umask is not None else None
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=self.environment, preexec_fn=before)
        ready, _, _ = select.select([self.process.stdout], [], [], HANG_S)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("moonpool bus ready "):
            self.kill()
            raise AssertionError(f"not ready: {line!r}\n{self.log_text()}")
        self.addresses = dict(part.split("=", 1) for part in line.split()[3:])
        return self

    def log_text(self):
        self.log.seek(0)
        return self.log.read()

    def await_log(self, word):
        limit = time.monotonic() + HANG_S
        while word not in self.log_text():
            if time.monotonic() > limit:
                raise AssertionError(f"no {word} in\n{self.log_text()}")
            time.sleep(0.01)

    def end(self, number):
        self.process.send_signal(number)
        code = self.process.wait(HANG_S)
        self.process.stdout.close()
        return code

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.end(signal.SIGKILL)


def run(*arguments, timeout_s=HANG_S, **options):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=timeout_s,
                          env={k: v for k, v in os.environ.items() if not k.startswith("MOONPOOL_")}, **options)


class BusProcess(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="moonpool_bus_")
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.llama = FakeLlama()
        self.addCleanup(self.llama.close)

    def path(self, *names):
        return os.path.join(self.root, *names)

    def flags(self, state="state", slots="slots", http="127.0.0.1:0", **more):
        flags = [f"--state={self.path(state)}", f"--http={http}"]
        if slots:
            flags.append(f"--engine=name=a,url={self.llama.url},slots={self.path(slots)}")
        return flags + [f"--{name.replace('_', '-')}={value}" for name, value in more.items()]

    def bus(self, *arguments, **options):
        bus = Bus(*arguments, **options)
        self.addCleanup(bus.kill)
        return bus

    def assert_refused(self, result, *parts):
        self.assertNotEqual(result.returncode, 0)
        for part in parts:
            self.assertIn(part, result.stderr)
        self.assertNotIn("ready", result.stdout)

    def assert_serves(self, bus):
        self.assertEqual(call(bus.addresses["http"], "GET", "/healthz")[0], 200)

    # --- starting ---

    def test_port_zero_is_reported_and_works(self):
        bus = self.bus(*self.flags(grpc="127.0.0.1:0")).start()
        self.assertNotIn(":0", bus.addresses["http"][-2:])
        self.assertNotIn(":0", bus.addresses["grpc"][-2:])
        self.assertEqual(bus.addresses["grpc-unix"], self.path("state", "bus.sock"))
        self.assert_serves(bus)
        host, port = bus.addresses["grpc"].rsplit(":", 1)
        socket.create_connection((host, int(port)), HANG_S).close()

    def test_second_instance_names_the_reason_and_leaves_the_first_alone(self):
        first = self.bus(*self.flags(grpc="127.0.0.1:0", http_unix=self.path("http.sock"))).start()
        cases = [
            (self.flags(state="other"), self.path("slots")),
            (self.flags(state="other", slots="", grpc_unix=self.path("state", "bus.sock")), "bus.sock"),
            (self.flags(state="other", slots="", http_unix=self.path("http.sock")), "http.sock"),
            (self.flags(state="other", slots="", http=first.addresses["http"]), first.addresses["http"]),
            (self.flags(state="other", slots="", grpc=first.addresses["grpc"]), first.addresses["grpc"]),
        ]
        for flags, name in cases:
            with self.subTest(name):
                # B63 asks for two seconds; the rest is for a machine that does other things too.
                self.assert_refused(run("bus", *flags, timeout_s=20), name)
                self.assert_serves(first)
                for path in (self.path("state", "bus.sock"), self.path("http.sock")):
                    with socket.socket(socket.AF_UNIX) as client:
                        client.connect(path)
        self.assertEqual(first.end(signal.SIGTERM), 0)

    def test_restart_after_kill_binds_again_and_sweeps_own_files_only(self):
        bus = self.bus(*self.flags()).start()
        bus.end(signal.SIGKILL)
        own, foreign = self.path("slots", "mp-0123.bin"), self.path("slots", "mine.bin")
        for path in (own, foreign):
            with open(path, "w") as file:
                file.write("x")
        again = self.bus(*self.flags()).start()
        self.assert_serves(again)
        self.assertFalse(os.path.exists(own))
        self.assertTrue(os.path.exists(foreign))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.path("state", "bus.sock"))
        self.assertEqual(again.end(signal.SIGTERM), 0)

    def test_regular_file_at_a_socket_path_is_kept(self):
        path = self.path("file")
        with open(path, "w") as file:
            file.write("precious")
        for flag in ("grpc_unix", "http_unix"):
            self.assert_refused(run("bus", *self.flags(slots="", **{flag: path})), path)
        with open(path) as file:
            self.assertEqual(file.read(), "precious")

    def test_long_socket_path_is_a_clear_error(self):
        path = self.path("x" * 150)
        self.assert_refused(run("bus", *self.flags(slots="", grpc_unix=path)), path)

    def test_wrong_options_are_named(self):
        for flag, value, part in [("quota", "20GB/s", "20GB/s"), ("block", "0", "block"),
                                  ("http", "nonsense", "nonsense"),
                                  ("ticket_ttl", "5", "5"), ("engine", "name=a", "a"), ("canary", "x", "canary"),
                                  ("engine", "http://127.0.0.1:1", "slot directory"), ("bind_namespace", "x=y", "x=y"),
                                  ("token_file", "/nonexistent", "/nonexistent"), ("unknown", "1", "unknown")]:
            with self.subTest(flag):
                self.assert_refused(run("bus", *self.flags(slots="", **{flag: value})), part)

    # --- who may see what ---

    def test_everything_is_private_even_with_umask_000(self):
        self.bus(*self.flags(http_unix=self.path("state", "http.sock")), umask=0).start()
        wide = []
        for folder, _, files in os.walk(self.root):
            for path in [folder] + [os.path.join(folder, name) for name in files]:
                if path != self.root and os.lstat(path).st_mode & 0o077 and not os.path.islink(path):
                    wide.append((path, oct(os.lstat(path).st_mode)))
        self.assertEqual(wide, [])
        mode = os.lstat(self.path("state", "bus.sock")).st_mode
        self.assertTrue(stat.S_ISSOCK(mode))
        self.assertEqual(stat.S_IMODE(mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("slots")).st_mode), 0o700)

    def test_slot_directory_of_others_is_refused(self):
        os.mkdir(self.path("real"), 0o700)
        os.symlink(self.path("real"), self.path("slots"))
        self.assert_refused(run("bus", *self.flags()), self.path("slots"))
        os.unlink(self.path("slots"))
        os.mkdir(self.path("slots"))
        os.chmod(self.path("slots"), 0o777)
        self.assert_refused(run("bus", *self.flags()), self.path("slots"))
        if os.geteuid() == 0:
            os.chmod(self.path("slots"), 0o700)
            os.chown(self.path("slots"), 12345, 12345)
            self.assert_refused(run("bus", *self.flags()), self.path("slots"))

    def test_slot_directory_that_others_read_is_closed(self):
        os.mkdir(self.path("slots"))
        os.chmod(self.path("slots"), 0o755)
        self.bus(*self.flags()).start()
        self.assertEqual(stat.S_IMODE(os.stat(self.path("slots")).st_mode), 0o700)

    def test_other_addresses_need_consent_and_tokens(self):
        self.assert_refused(run("bus", *self.flags(slots="", http="0.0.0.0:0")), "--listen-any")
        self.assert_refused(run("bus", *self.flags(slots="", http="0.0.0.0:0"), "--listen-any"), "--token-file")
        tokens = self.path("tokens")
        with open(tokens, "w") as file:
            file.write("a-token-of-everybody\n")
        os.chmod(tokens, 0o644)
        self.assert_refused(run("bus", *self.flags(slots="", token_file=tokens)), tokens)
        os.chmod(tokens, 0o600)
        bus = self.bus(*self.flags(slots="", http="0.0.0.0:0", token_file=tokens), "--listen-any").start()
        address = bus.addresses["http"].replace("0.0.0.0", "127.0.0.1")
        self.assertEqual(call(address, "GET", "/v1/stats")[0], 401)
        self.assertEqual(call(address, "GET", "/v1/stats", headers={"Authorization": "Bearer a-token-of-everybody"})[0],
                         200)

    def test_namespace_bound_to_a_listener_stays(self):
        bus = self.bus(*self.flags(bind_namespace="http=team-a")).start()
        prompt = {"engine": "a", "tokens": [1, 2, 3], "namespace": "team-b"}
        self.assertEqual(call(bus.addresses["http"], "POST", "/v1/lookup", prompt)[0], 403)
        self.assertEqual(call(bus.addresses["http"], "POST", "/v1/lookup", {**prompt, "namespace": "team-a"})[0], 200)

    # --- running ---

    def test_unprobed_engine_is_bypassed_with_a_reason(self):
        bus = self.bus(*self.flags()).start()
        status, reply = call(bus.addresses["http"], "POST", "/v1/prepare", {"engine": "a", "tokens": [1, 2, 3]})
        self.assertEqual((status, reply["decision"], reply["ticket"]), (200, "BYPASS", ""))
        self.assertNotIn("slot", reply)
        status, error = call(bus.addresses["http"], "POST", "/v1/prepare", {"engine": "nobody", "tokens": [1]})
        self.assertGreaterEqual(status, 400)
        self.assertIn("nobody", error["error"]["message"])

    def test_sigterm_and_sigint_end_with_zero(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            bus = self.bus(*self.flags()).start()
            self.assertEqual(bus.end(number), 0, bus.log_text())
            self.assertFalse(os.path.exists(self.path("state", "bus.sock")))

    def test_sighup_reads_the_engines_again(self):
        config = self.path("bus.toml")

        def write(*names):
            engines = ", ".join(f'"name={name},url={self.llama.url},slots={self.path("slots-" + name)}"'
                                for name in names)
            with open(config, "w") as file:
                file.write(f"engine = [{engines}]\n")

        def engines(bus):
            return [engine["name"] for engine in call(bus.addresses["http"], "GET", "/v1/stats")[1]["engines"]]

        write("a", "b")
        bus = self.bus(*self.flags(slots="", config=config)).start()
        self.assertEqual(engines(bus), ["a", "b"])
        write("b", "c")
        bus.process.send_signal(signal.SIGHUP)
        bus.await_log("engines_reloaded")
        self.assertEqual(engines(bus), ["b", "c"])
        with open(config, "w") as file:
            file.write('engine = ["nonsense"]\n')
        bus.process.send_signal(signal.SIGHUP)
        bus.await_log("engines_not_reloaded")
        self.assertEqual(engines(bus), ["b", "c"], "a mistake changes nothing")
        other = self.bus(*self.flags(state="other", slots="slots-a")).start()  # a's directory is free again
        self.assertEqual(other.end(signal.SIGTERM), 0)
        self.assertEqual(bus.end(signal.SIGTERM), 0)

    def test_flags_win_over_the_file_and_the_file_over_the_environment(self):
        config = self.path("bus.toml")
        with open(config, "w") as file:
            file.write('quota = "2GiB"\n')
        environment = {"MOONPOOL_QUOTA": "1GiB"}
        for flags, expected in [([], 1 << 30), ([f"--config={config}"], 2 << 30),
                                ([f"--config={config}", "--quota=3GiB"], 3 << 30)]:
            bus = self.bus(*self.flags(slots=""), *flags, environment=environment).start()
            self.assertEqual(call(bus.addresses["http"], "GET", "/v1/stats")[1]["store"]["quotaBytes"], expected)
            bus.end(signal.SIGTERM)

    def test_the_service_manager_is_told(self):
        path = self.path("notify.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(HANG_S)
            bus = self.bus(*self.flags(), environment={"NOTIFY_SOCKET": path}).start()
            self.assertIn(b"READY=1", manager.recv(4096))
            bus.process.send_signal(signal.SIGHUP)
            self.assertIn(b"RELOADING=1\nMONOTONIC_USEC=", manager.recv(4096))
            self.assertIn(b"READY=1", manager.recv(4096))
            bus.end(signal.SIGTERM)
            self.assertEqual(manager.recv(4096), b"STOPPING=1")

    def test_json_log_is_json_lines(self):
        bus = self.bus(*self.flags(log_format="json")).start()
        bus.end(signal.SIGTERM)
        lines = bus.log_text().splitlines()
        self.assertTrue(any("bus_ready" in json.loads(line)["message"] for line in lines))
        self.assertTrue(any("bus_stopped" in json.loads(line)["message"] for line in lines))

    def test_malformed_requests_leave_it_alive(self):
        """Field report B33, against the whole program."""
        bus = self.bus(*self.flags()).start()
        host, port = bus.addresses["http"].rsplit(":", 1)
        head = b"POST /v1/lookup HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        deep = b"[" * 100000
        cases = [
            head + b"Content-Length: 100000\r\n\r\n" + deep,
            head + b"Content-Length: 2147483648\r\n\r\n{",
            head + b"Content-Length: -1\r\n\r\n{}",
            head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            head + b"Content-Length: 99999999999999999999\r\n\r\n{}",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        ]
        for raw in cases:
            with socket.create_connection((host, int(port)), HANG_S) as client:
                client.sendall(raw)
                client.shutdown(socket.SHUT_WR)
                answer = client.recv(64)
                if answer:
                    self.assertRegex(answer.decode("latin-1"), r"^HTTP/1\.1 4\d\d ")
        # A crowd that says nothing, and a body that never comes whole.
        crowd = [socket.create_connection((host, int(port)), HANG_S) for _ in range(200)]
        with socket.create_connection((host, int(port)), HANG_S) as slow:
            slow.sendall(head + b"Content-Length: 50\r\n\r\n{")
            self.assert_serves(bus)
        for client in crowd:
            client.close()
        self.assert_serves(bus)
        self.assertEqual(bus.end(signal.SIGTERM), 0)

    def test_two_million_tokens(self):
        bus = self.bus(*self.flags()).start()
        status, reply = call(bus.addresses["http"], "POST", "/v1/lookup",
                             {"engine": "a", "tokens": [i % 1000 for i in range(2_000_000)]})
        self.assertEqual(status, 200, reply)
        with open(f"/proc/{bus.process.pid}/status") as file:
            resident_kib = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        self.assertLess(resident_kib, (4 if "MOONPOOL_SANITIZED" in os.environ else 1) * 512 * 1024)


class OtherCommands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="moonpool_ctl_")
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def doctor(self, llama, *more, slots=None):
        slots = slots or os.path.join(self.root, "slots")
        os.makedirs(slots, mode=0o700, exist_ok=True)
        result = run("doctor", "--json", f"--store={self.root}/store",
                     f"--engine=name=a,url={llama.url},slots={slots}{''.join(more)}")
        return result, json.loads(result.stdout)

    def problems(self, report):
        return {finding["subject"]: finding["advice"] for finding in report["engines"][0]["findings"]
                if finding["severity"] == "problem"}

    def test_help_and_version(self):
        self.assertRegex(run("--version").stdout, r"^moonpool \d+\.\d+\.\d+\n$")
        for arguments in (["--help"], ["bus", "--help"], ["doctor", "--help"], ["ctl", "--help"],
                          ["ctl", "ls", "--help"]):
            result = run(*arguments)
            self.assertEqual(result.returncode, 0, arguments)
            self.assertIn("--help", result.stdout)
        self.assertNotEqual(run().returncode, 0)
        self.assertNotEqual(run("nonsense").returncode, 0)

    def test_doctor_says_what_to_change(self):
        for options, subject, advice in [({"save_path": False}, "slot files", "--slot-save-path"),
                                         ({"api_key": "secret"}, "api key", "api-key-file"),
                                         ({}, "model", "model=FILE")]:
            llama = FakeLlama(**options)
            try:
                result, report = self.doctor(llama)
                self.assertEqual(result.returncode, 1)
                self.assertFalse(report["ok"])
                self.assertIn(advice, self.problems(report)[subject])
            finally:
                llama.close()

    def test_doctor_knows_ollama(self):
        ollama = FakeLlama(greeting="Ollama is running")
        self.addCleanup(ollama.close)
        _, report = self.doctor(ollama)
        self.assertIn("Ollama", self.problems(report)["server"])

    def test_doctor_on_nobody(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            result = run("doctor", f"--engine=http://127.0.0.1:{free.getsockname()[1]},{self.root}")
        self.assertEqual(result.returncode, 1)
        self.assertIn("start the server", result.stdout)

    def test_ctl_without_store_or_bus_is_an_error(self):
        self.assertEqual(run("ctl", "ls", f"--store={self.root}/nothing").returncode, 1)
        self.assertFalse(os.path.exists(f"{self.root}/nothing"), "looking makes nothing")
        result = run("ctl", "stats", f"--url=unix:{self.root}/nothing.sock")
        self.assertEqual(result.returncode, 1)
        self.assertIn("nothing.sock", result.stderr)

    def test_ctl_beside_a_running_bus(self):
        llama = FakeLlama()
        self.addCleanup(llama.close)
        bus = Bus(f"--state={self.root}/state", "--http=127.0.0.1:0",
                  f"--engine=name=a,url={llama.url},slots={self.root}/slots").start()
        self.addCleanup(bus.kill)
        url = f"--url=http://{bus.addresses['http']}"
        self.assertIn("a ", run("ctl", "stats", url).stdout)
        self.assertEqual(json.loads(run("ctl", "stats", url, "--json").stdout)["engines"][0]["name"], "a")
        self.assertIn("0 objects", run("ctl", "ls", f"--store={self.root}/state/store").stdout)
        self.assertEqual(json.loads(run("ctl", "ls", "--json", f"--store={self.root}/state/store").stdout), [])
        self.assertEqual(run("ctl", "verify", f"--store={self.root}/state/store").returncode, 0)
        self.assertEqual(run("ctl", "rm", f"--store={self.root}/state/store").returncode, 1, "all only by --all")
        self.assertEqual(run("ctl", "rm", "--all", f"--store={self.root}/state/store").returncode, 0)
        tokens = os.path.join(self.root, "tokens.json")
        with open(tokens, "w") as file:
            json.dump([1, 2, 3], file)
        self.assertIn("BYPASS", run("ctl", "explain", url, "--engine=a", f"--tokens-file={tokens}").stdout)
        self.assertNotEqual(run("ctl", "explain", url, "--engine=none", f"--tokens-file={tokens}").returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
