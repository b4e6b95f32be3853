"""A llama-server just true enough for the bus to find it: health, props, slots. It never evaluates anything."""

import http.server
import json
import threading


class FakeLlama:
    """Serves on a free loopback port from construction to close(). `model` is what /props names."""

    def __init__(self, model="/nonexistent/model.gguf", slots=1, api_key=None, save_path=True, busy=False, greeting=""):
        outer = self
        self.calls = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body):
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def error(self, status, kind):
                self.answer(status, {"error": {"code": status, "type": kind, "message": kind}})

            def handle_call(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0]
                outer.calls.append((self.command, self.path, body))
                if path != "/health" and api_key and self.headers.get("Authorization") != f"Bearer {api_key}":
                    return self.error(401, "authentication_error")
                if path == "/" and greeting:
                    return self.answer(200, greeting)
                if path == "/health" and greeting:
                    return self.error(404, "not_found_error")
                if path == "/health":
                    return self.answer(200, {"status": "ok"})
                if path == "/props":
                    return self.answer(200, {
                        "default_generation_settings": {"params": {}, "n_ctx": 2048}, "total_slots": slots,
                        "model_alias": "fake", "model_path": model, "modalities": {"vision": False, "audio": False},
                        "media_marker": "<__media_1__>", "build_info": "b1-fake", "is_sleeping": False})
                if path == "/slots":
                    return self.answer(200, [{"id": i, "n_ctx": 2048, "is_processing": busy, "id_task": 0}
                                             for i in range(slots)])
                if path == "/lora-adapters":
                    return self.answer(200, [])
                if path.startswith("/slots/") and "action=save" in self.path:
                    if not save_path:
                        return self.error(501, "not_supported_error")
                    return self.error(400, "invalid_request_error")
                return self.error(404, "not_found_error")

            do_GET = do_POST = handle_call

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # a bus that was stopped does not wait for answers

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
