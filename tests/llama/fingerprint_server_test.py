"""Which real servers share KV, and which do not (decision 6, field reports B01 and B04).

Every server is probed by one bus; equal fingerprints mean that they share. One model, small contexts.
"""

import os
import shutil
import tempfile
import unittest

import model_files
from bus_process import BusProcess
from llama_server import LlamaServer

MOONPOOL = os.environ["MOONPOOL_TARGET_MOONPOOL"]

# Other thread counts, batch sizes and slot counts join one family.
ALIKE = {
    "base": {},
    "threads": {"threads": 2},
    "batch": {"n_batch": 64, "n_ubatch": 8},
    "slots": {"n_parallel": 2, "n_ctx": 1024},
    "unified": {"n_parallel": 2, "kv_unified": True},
    "context": {"n_ctx": 1024},
}
# Whatever changes the meaning of KV bytes does not.
OTHERS = {
    "rope_base": {"rope_freq_base": 101000.0},
    "rope_scale": {"rope_freq_scale": 0.98},
    "yarn": {"rope_scaling": "yarn", "rope_freq_scale": 0.8, "yarn_orig_ctx": 2048},
    "q8_0": {"cache_type_k": "q8_0", "cache_type_v": "q8_0"},
    "q8_0_k": {"cache_type_k": "q8_0"},
    "no_flash": {"flash_attn": "off"},
}


class FingerprintServerTest(unittest.TestCase):
    def test_who_shares(self):
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="moonpool_fingerprints_", dir=parent) as folder:
            model = model_files.plain_attention()
            altered = os.path.join(folder, "altered.gguf")
            shutil.copyfile(model, altered)
            with open(altered, "r+b") as file:
                file.seek(-1000, os.SEEK_END)  # tensor data: the last layer's weights
                byte = file.read(1)
                file.seek(-1000, os.SEEK_END)
                file.write(bytes([byte[0] ^ 1]))
            variants = {**ALIKE, **OTHERS, "altered": {"model": altered}}
            # A few at a time: every server keeps the model and a context in memory.
            fingerprints = {}
            names = list(variants)
            for start in range(0, len(names), 4):
                servers = {}
                for name in names[start:start + 4]:
                    slots = os.path.join(folder, "slots_" + name)
                    os.mkdir(slots)
                    options = {"model": model, "n_ctx": 512, **variants[name]}
                    servers[name] = LlamaServer(slot_dir=slots, **options)
                    servers[name].start()
                    self.addCleanup(servers[name].stop)
                with BusProcess(MOONPOOL, folder, servers) as bus:
                    bus.wait_ready()
                    for name, engine in bus.engines().items():
                        self.assertEqual(engine["state"], "ready", f"{name}: {engine}")
                        fingerprints[name] = engine["fingerprint"]
                for server in servers.values():
                    server.stop()
            for name in ALIKE:
                self.assertEqual(fingerprints[name], fingerprints["base"], name)
            for name in [*OTHERS, "altered"]:
                alike = [other for other in fingerprints if other != name and fingerprints[other] == fingerprints[name]]
                self.assertEqual(alike, [], name)


if __name__ == "__main__":
    unittest.main()
