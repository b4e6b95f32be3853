"""A real llama.cpp server as a child process, for tests, the demo and the benchmarks.

The server is the one embedded in the xllamacpp wheel, with the HTTP interface of llama-server. It runs in
a process of its own, so several can run side by side and each can be killed or stopped by its pid.

From Python:

    with LlamaServer(model=path, slot_dir=folder, n_parallel=2) as server:
        status, answer = server.call("GET", "/props")

From a shell, or from a program in another language:

    python llama_server.py --model MODEL --slot-dir FOLDER --np 2 --exit-on-stdin-close

The command prints one JSON line {"url", "pid", "slot_dir", "log"} on stdout when the server answers /health
with 200, and nothing else, ever. The pid is the server's own: SIGKILL hits it, SIGSTOP freezes it.

No orphans: the process ends with the thread that started it (PR_SET_PDEATHSIG), and, when asked for, as soon
as its stdin is closed. LlamaServer uses the stdin of the child as a lifeline, so it may be used from any thread.
Not thread-safe otherwise. Times are in seconds.
"""

import argparse
import collections
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

PR_SET_PDEATHSIG = 1
START_TIMEOUT_S = 180.0  # a debug machine under load needs 20 s for the largest test model
STOP_TIMEOUT_S = 10.0
LOG_TAIL_BYTES = 4000

# No proxy from the environment may come between us and loopback.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

# One row per server option: (keyword, command-line flag, type, default, help). The keyword is the name in
# LlamaServer(), the flag follows llama-server where it has one. bool options become --flag / --no-flag.
Option = collections.namedtuple("Option", "name flag type default help")
OPTIONS = [
    Option("model", "--model", str, None, "GGUF file"),
    Option("slot_dir", "--slot-dir", str, None, "folder for slot files; without it the server refuses slot actions"),
    Option("n_parallel", "--np", int, 1, "number of slots"),
    Option("n_ctx", "--ctx", int, 4096, "cells over all slots; each slot gets n_ctx / n_parallel of them"),
    Option("kv_unified", "--kv-unified", bool, False, "one KV buffer for all slots"),
    Option("cache_type_k", "--cache-type-k", str, "f16", "type of K in the cache"),
    Option("cache_type_v", "--cache-type-v", str, "f16", "type of V in the cache"),
    Option("flash_attn", "--flash-attn", str, "on", "on, off or auto"),
    Option("threads", "--threads", int, 1, "threads for evaluation"),
    Option("n_batch", "--batch", int, 512, "logical batch"),
    Option("n_ubatch", "--ubatch", int, 512, "physical batch"),
    Option("cache_ram_mib", "--cache-ram", int, 0, "the server's own prompt cache in MiB; erase does not empty it"),
    Option("cache_idle_slots", "--cache-idle-slots", bool, True, "copy idle slots to the prompt cache"),
    Option("rope_freq_base", "--rope-freq-base", float, 0.0, "0: the model's"),
    Option("rope_freq_scale", "--rope-freq-scale", float, 0.0, "0: the model's"),
    Option("rope_scaling", "--rope-scaling", str, None, "none, linear, yarn or longrope; not given: the model's"),
    Option("yarn_orig_ctx", "--yarn-orig-ctx", int, 0, "0: the model's"),
    Option("yarn_ext_factor", "--yarn-ext-factor", float, -1.0, "-1: the model's"),
    Option("yarn_attn_factor", "--yarn-attn-factor", float, -1.0, "-1: the model's"),
    Option("yarn_beta_fast", "--yarn-beta-fast", float, -1.0, "-1: the model's"),
    Option("yarn_beta_slow", "--yarn-beta-slow", float, -1.0, "-1: the model's"),
    Option("swa_full", "--swa-full", bool, False, "full-size cache for sliding-window layers"),
    Option("ctx_shift", "--context-shift", bool, False, "drop the oldest half when the context is full"),
    Option("n_ctx_checkpoints", "--ctx-checkpoints", int, 32, "per slot, for sliding-window and recurrent models"),
    Option("slot_prompt_similarity", "--slot-prompt-similarity", float, 0.1, "0: never choose a slot by its content"),
    Option("sleep_idle_seconds", "--sleep-idle-seconds", int, -1, "-1: never"),
    Option("endpoint_slots", "--slots", bool, True, "GET /slots"),
    Option("endpoint_props", "--props", bool, True, "POST /props"),
    Option("metrics", "--metrics", bool, True, "GET /metrics"),
    Option("warmup", "--warmup", bool, False, "evaluate once before the first request"),
    Option("port", "--port", int, 0, "0: any free port"),
    Option("verbosity", "--verbosity", int, 3, "of the log: 1 errors, 2 warnings, 3 information, above: all"),
]

_FLASH_ATTENTION = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
# Options whose name in xllamacpp's CommonParams is the keyword itself.
_SAME_NAME = [
    "n_parallel", "n_ctx", "kv_unified", "n_batch", "n_ubatch", "cache_ram_mib", "cache_idle_slots", "rope_freq_base",
    "rope_freq_scale", "yarn_orig_ctx", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow",
    "swa_full", "ctx_shift", "n_ctx_checkpoints", "slot_prompt_similarity", "sleep_idle_seconds", "endpoint_slots",
    "endpoint_props", "warmup", "port", "verbosity",
]


class ServerFailed(Exception):
    """The server did not start; the text carries the end of its log."""


def log_tail(path, offset=0):
    """The end of the log, of what was written after `offset`."""
    try:
        with open(path, "rb") as log:
            log.seek(max(offset, os.path.getsize(path) - LOG_TAIL_BYTES))
            return log.read().decode("utf-8", "replace")
    except OSError as error:
        return f"(no log: {error})"


def http_call(url, method, path, body=None, api_key=None, timeout_s=300.0):
    """One request. Returns (status, decoded JSON or text); an HTTP error status is an answer, not an exception."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, method=method, headers=headers)
    try:
        with _opener.open(request, timeout=timeout_s) as response:
            status, raw = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, raw = error.code, error.read()
    text = raw.decode("utf-8", "replace")
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


class LlamaServer:
    """Owns one server process from start() to stop(); as a context manager, for the block.

    Keywords are those of OPTIONS, and: api_key (text or list), lora (list of paths or (path, scale) pairs),
    extra (a dict of further xllamacpp CommonParams fields), log (path of the server's log; default: beside the
    slot folder), python (interpreter that has xllamacpp; default: this one).
    """

    def __init__(self, model, slot_dir=None, *, api_key=None, lora=(), extra=None, log=None, python=None,
                 start_timeout_s=START_TIMEOUT_S, **options):
        known = {option.name for option in OPTIONS}
        unknown = set(options) - known
        if unknown:
            raise TypeError(f"unknown server options: {', '.join(sorted(unknown))}")
        self.api_keys = [api_key] if isinstance(api_key, str) else list(api_key or [])
        self.slot_dir = str(slot_dir) if slot_dir is not None else None
        self.options = dict(options, model=str(model), slot_dir=self.slot_dir)
        self.lora = [(str(item), 1.0) if not isinstance(item, (tuple, list)) else (str(item[0]), float(item[1]))
                     for item in lora]
        self.extra = dict(extra or {})
        self.log = str(log) if log is not None else _default_log(self.slot_dir)
        self.python = python or sys.executable
        self.start_timeout_s = start_timeout_s
        self.url = None
        self.pid = None
        self._process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Starts the process and waits until it answers. Raises ServerFailed; then nothing is left running."""
        if self._process is not None:
            raise RuntimeError("already started")
        # The lifeline alone serves a thread that ends before the server: the death signal would come with it.
        in_main_thread = threading.current_thread() is threading.main_thread()
        command = [self.python, os.path.abspath(__file__), "--exit-on-stdin-close",
                   *_flags(self.options, self.api_keys, self.lora, self.extra), "--log", self.log]
        if not in_main_thread:
            command.append("--no-parent-death-signal")
        log_start = os.path.getsize(self.log) if os.path.exists(self.log) else 0  # a restarted server appends
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            ready = json.loads(_read_line(self._process.stdout, time.monotonic() + self.start_timeout_s))
        except (TimeoutError, EOFError, ValueError) as error:
            self.kill()
            tail = log_tail(self.log, log_start)
            raise ServerFailed(f"server of {self.options['model']}: {error}\n{tail}") from error
        self.url, self.pid = ready["url"], ready["pid"]
        return self

    def alive(self):
        return self._process is not None and self._process.poll() is None

    def stop(self):
        """SIGTERM, then SIGKILL when that takes too long. Also wakes a process that was frozen by SIGSTOP."""
        self._end(signal.SIGTERM)

    def kill(self):
        """SIGKILL, as a crash would look to everybody else."""
        self._end(signal.SIGKILL)

    def call(self, method, path, body=None, timeout_s=300.0):
        key = self.api_keys[0] if self.api_keys else None
        return http_call(self.url, method, path, body, key, timeout_s)

    def complete(self, prompt, **fields):
        """POST /completion, greedy unless told otherwise; returns the answer. Raises ServerFailed on an error."""
        body = {"prompt": prompt, "temperature": 0, "cache_prompt": True, **fields}
        return self._expect_ok("POST", "/completion", body)

    def slot_action(self, slot, action, filename=None):
        """save, restore or erase; returns (status, answer)."""
        body = {} if filename is None else {"filename": filename}
        return self.call("POST", f"/slots/{slot}?action={action}", body)

    def tokenize(self, content, add_special=True, parse_special=True):
        body = {"content": content, "add_special": add_special, "parse_special": parse_special}
        return self._expect_ok("POST", "/tokenize", body)["tokens"]

    def _expect_ok(self, method, path, body):
        status, answer = self.call(method, path, body)
        if status != 200:
            raise ServerFailed(f"{method} {path}: {status} {answer}")
        return answer

    def _end(self, first_signal):
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(first_signal)
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdin.close()
        process.stdout.close()


def _default_log(slot_dir):
    if slot_dir is not None:
        return slot_dir.rstrip("/") + ".log"
    handle, path = tempfile.mkstemp(prefix="llama_server_", suffix=".log")
    os.close(handle)
    return path


def _flags(options, api_keys, lora, extra):
    flags = []
    for option in OPTIONS:
        value = options.get(option.name, option.default)
        if value is None or value == option.default:
            continue
        if option.type is bool:
            flags.append(option.flag if value else "--no-" + option.flag[2:])
        else:
            flags += [f"{option.flag}={value}"]
    flags += [f"--api-key={key}" for key in api_keys]
    flags += [f"--lora={path}={scale}" for path, scale in lora]
    flags += [f"--set={name}={json.dumps(value)}" for name, value in extra.items()]
    return flags


def _read_line(stream, deadline):
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            raise TimeoutError("not ready in time")
        chunk = os.read(stream.fileno(), 4096)
        if not chunk:
            raise EOFError("ended before it was ready")
        line += chunk
    return line


# --- The server process itself ------------------------------------------------------------------------------------


def _parse(arguments):
    parser = argparse.ArgumentParser(description="A real llama.cpp server; prints one JSON line when it is ready.")
    for option in OPTIONS:
        if option.type is bool:
            parser.add_argument(option.flag, dest=option.name, action=argparse.BooleanOptionalAction,
                                default=option.default, help=option.help)
        else:
            parser.add_argument(option.flag, dest=option.name, type=option.type, default=option.default,
                                required=option.name == "model", help=f"{option.help} (default {option.default})")
    parser.add_argument("--api-key", action="append", default=[], help="repeatable")
    parser.add_argument("--lora", action="append", default=[], metavar="PATH=SCALE", help="repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=JSON",
                        help="any other field of xllamacpp's CommonParams; repeatable")
    parser.add_argument("--log", help="file for the server's log (default: beside the slot folder)")
    parser.add_argument("--exit-on-stdin-close", action="store_true", help="end when stdin reaches its end")
    parser.add_argument("--parent-death-signal", action=argparse.BooleanOptionalAction, default=True,
                        help="end with the thread that started this process")
    return parser.parse_args(arguments)


def _bind_to_parent():
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before the call: no signal will come any more
        os._exit(1)


def _end_with_stdin():
    while os.read(0, 4096):
        pass
    os._exit(0)


def _server_params(args):
    import xllamacpp  # here, so that LlamaServer can be used by an interpreter that lacks it

    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.slot_save_path = os.path.join(args.slot_dir, "") if args.slot_dir else ""
    for name in _SAME_NAME:
        setattr(params, name, getattr(args, name))
    params.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{args.cache_type_k.upper()}")
    params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{args.cache_type_v.upper()}")
    params.flash_attn_type = getattr(
        xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{_FLASH_ATTENTION[args.flash_attn]}")
    if args.rope_scaling is not None:
        params.rope_scaling_type = getattr(
            xllamacpp.llama_rope_scaling_type, f"LLAMA_ROPE_SCALING_TYPE_{args.rope_scaling.upper()}")
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    params.endpoint_metrics = args.metrics
    params.api_keys = args.api_key
    adapters = []
    for spec in args.lora:
        path, _, scale = spec.rpartition("=")
        adapter = xllamacpp.CommonAdapterLoraInfo()
        adapter.path, adapter.scale = path, float(scale)
        adapters.append(adapter)
    if adapters:
        params.lora_adapters = adapters
    params.n_gpu_layers = 0
    params.fit_params = False  # never let the machine's free memory decide the context length
    params.ui = False
    for setting in args.set:
        name, _, value = setting.partition("=")
        setattr(params, name, json.loads(value))
    return params


def _serve(args):
    announce = os.dup(1)
    os.set_inheritable(announce, False)
    log = args.log or _default_log(os.path.abspath(args.slot_dir) if args.slot_dir else None)
    if args.slot_dir:
        os.makedirs(args.slot_dir, mode=0o700, exist_ok=True)
    log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    # The default action ends the process at once, also while native code holds the interpreter.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if args.exit_on_stdin_close:
        threading.Thread(target=_end_with_stdin, daemon=True).start()

    import xllamacpp

    if not os.path.isfile(args.model):
        raise SystemExit(f"no such model file: {args.model}")
    server = xllamacpp.Server(_server_params(args))
    url = server.listening_address
    deadline = time.monotonic() + START_TIMEOUT_S
    while http_call(url, "GET", "/health", timeout_s=10)[0] != 200:
        if time.monotonic() > deadline:
            raise SystemExit("the server started but never became healthy")
        time.sleep(0.05)
    ready = {"url": url, "pid": os.getpid(), "slot_dir": args.slot_dir, "log": log}
    os.write(announce, (json.dumps(ready) + "\n").encode())
    os.close(announce)
    while True:
        signal.pause()


def main():
    args = _parse(sys.argv[1:])
    if args.parent_death_signal:
        _bind_to_parent()
    _serve(args)


if __name__ == "__main__":
    main()
