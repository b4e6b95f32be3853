#!/usr/bin/env python3
"""Source checks that no compiler makes; run as the test `tidy`. Prints one line per finding, exits 1 if any.

    tools/tidy.py [ROOT]

Rules (each has a failing sample in tidy_test.py):
  modules     #include lines follow cmake/modules.txt; heavy libraries stay where they belong
  cycles      no header includes itself through others, no two modules include each other
  headers     #pragma once, and a comment on top that says what the header is for
  banned      calls that hide time, chance, environment, output or errors from the tests
  lines       at most 120 columns
  readme      every module folder explains itself
  paths       nothing names a folder of somebody's machine
  names       files are snake_case and named for a noun of the domain
  todo        a TODO names its issue

At the end it prints the ten longest files and functions, which never fails.
Rules see a Tree: all text files, by path relative to the root. Nothing here writes.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property

COLUMNS_MAX = 120
CODE = (".cc", ".h")
TEXT = CODE + (".py", ".sh", ".md", ".txt", ".cmake", ".json", ".proto", ".yml", ".yaml")
TEXT_NAMES = ("Makefile", "run")


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int  # 1-based; 0: the file as a whole
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: [{self.rule}] {self.message}"


def strip_code(text):
    """C++ with comments and the contents of literals blanked out; offsets and line breaks stay."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9A-Za-z])'(?:\\.|[^'\\\n])*'",
        re.DOTALL)

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())

    # The quoted name of an #include is a literal too, but the module rule needs it: it reads the raw text.
    return pattern.sub(blank, text)


class Tree:
    """The files of a checkout. A value, built once; texts maps a relative path to its text."""

    def __init__(self, texts):
        self.texts = dict(sorted(texts.items()))

    @staticmethod
    def read(root):
        texts = {}
        for path in _list_files(root):
            name = os.path.basename(path)
            if not path.endswith(TEXT) and name not in TEXT_NAMES:
                continue
            full = os.path.join(root, path)
            if os.path.isfile(full) and not os.path.islink(full):
                with open(full, encoding="utf-8", errors="replace") as file:
                    texts[path] = file.read()
        return Tree(texts)

    def code(self):
        return {path: text for path, text in self.texts.items() if path.endswith(CODE)}

    @cached_property
    def stripped(self):
        return {path: strip_code(text) for path, text in self.code().items()}

    @cached_property
    def modules(self):
        """module -> set of modules it may include, from cmake/modules.txt."""
        table = {}
        for line in self.texts.get("cmake/modules.txt", "").splitlines():
            match = re.match(r"([a-z_/]+):(.*)$", line)
            if match:
                table[match.group(1)] = set(match.group(2).split())
        return table

    def module_of(self, path):
        """The module with the longest name that `path` (relative to src/) lies in, or None."""
        inside = [module for module in self.modules if path.startswith(module + "/")]
        return max(inside, key=len, default=None)


def _list_files(root):
    git = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, capture_output=True, check=True).stdout.decode()
        return [path for path in listed.split("\0") if path]
    except (OSError, subprocess.CalledProcessError):  # a release archive, or another user's checkout
        found = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in ("build", ".state", ".git", "__pycache__")]
            found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
        return found


def is_test(path):
    return path.startswith(("tests/", "bench/")) or path.endswith(("_test.cc", "_test.h", "_fixture.h", "_bench.cc"))


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def includes(text):
    """(line, name, quoted) of every #include."""
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]+([<"])([^>"\n]+)[>"]', text, re.MULTILINE):
        yield line_of(text, match.start()), match.group(2), match.group(1) == '"'


# --- Rules ----------------------------------------------------------------------------------------------------------

# Heavy or leaky libraries: where their headers may be named. They cost seconds per file, or their types would spread.
HEAVY = [
    (re.compile(r"^boost/(asio|beast)"), ("src/net/",), "Asio and Beast stay in net"),
    (re.compile(r"^grpc(pp)?/|^google/protobuf|\.pb\.h$"), ("src/bus/server/", "src/app/"),
     "gRPC and protobuf stay in bus/server"),
    (re.compile(r"^CLI/"), ("src/app/",), "the command line stays in app"),
]


def heavy_names(tree, path, seen):
    """Heavy headers that `path` brings in, itself or through headers of ours."""
    seen.add(path)
    for _, name, _ in includes(tree.texts[path]):
        if any(library.search(name) for library, _, _ in HEAVY):
            yield name
        inner = "src/" + name
        if inner in tree.texts and inner not in seen:
            yield from heavy_names(tree, inner, seen)


def check_modules(tree):
    for path, text in tree.code().items():
        if is_test(path) or not path.startswith("src/"):
            continue
        module = tree.module_of(path[len("src/"):])
        for line, name, quoted in includes(text):
            inner = "src/" + name
            for heavy in [name, *(heavy_names(tree, inner, set()) if inner in tree.texts else ())]:
                for library, place, message in HEAVY:
                    if library.search(heavy) and not path.startswith(place):
                        yield Finding(path, line, "modules", f"brings in {heavy}: {message}")
            if module is None or not quoted or name.startswith("moonpool/") or name.endswith(".pb.h"):
                continue
            target = tree.module_of(name)
            if target is None:
                yield Finding(path, line, "modules", f'"{name}" is in no module; includes are rooted at src/')
            elif target != module and target not in tree.modules[module]:
                yield Finding(path, line, "modules", f"{module} may not include {target}; see cmake/modules.txt")
        if module is None:
            yield Finding(path, 0, "modules", "lies in no module of cmake/modules.txt")


def include_graph(tree, node_of, only=""):
    """node -> nodes it includes, over the sources (not the tests) whose path ends with `only`."""
    graph = {}
    for path, text in tree.code().items():
        if is_test(path) or not path.startswith("src/") or not path.endswith(only):
            continue
        here = node_of(path[len("src/"):])
        targets = graph.setdefault(here, set())
        targets.update(node_of(name) for _, name, quoted in includes(text) if quoted)
        targets.discard(here)
    return graph


def find_cycles(graph):
    """Each set of nodes that reach one another, as a sorted list (Tarjan, without recursion)."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for start in sorted(graph):
        if start in index:
            continue
        work = [(start, iter(sorted(graph[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, edges = work[-1]
            for target in edges:
                if target not in graph:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    if len(group) > 1:
                        found.append(sorted(group))
    return found


def check_cycles(tree):
    for cycle in find_cycles(include_graph(tree, str, only=".h")):
        yield Finding(f"src/{cycle[0]}", 0, "cycles", "headers include each other: " + ", ".join(cycle))
    for cycle in find_cycles(include_graph(tree, lambda path: tree.module_of(path) or "")):
        yield Finding(f"src/{cycle[0]}", 0, "cycles", "modules include each other: " + ", ".join(cycle))
    for cycle in find_cycles(tree.modules):
        yield Finding("cmake/modules.txt", 0, "cycles", "the table itself goes round: " + ", ".join(cycle))


def check_headers(tree):
    for path, text in tree.code().items():
        if not path.endswith(".h"):
            continue
        if not text.startswith(("//", "/*")):
            yield Finding(path, 1, "headers", "begins with no comment that says what it is for")
        if not re.search(r"^#pragma once$", text, re.MULTILINE):
            yield Finding(path, 1, "headers", "has no #pragma once")


def _everywhere(_):
    return True


def _outside(*prefixes):
    return lambda path: path.startswith("src/") and not is_test(path) and not path.startswith(prefixes)


def _src_and_tests_outside(*prefixes):
    return lambda path: path.startswith(("src/", "tests/")) and not path.startswith(prefixes)


# (pattern over stripped code, where it applies, what to do instead)
BANNED = [
    (r"\bgetenv\s*\(", _outside("src/app/"), "the environment is read in app/ only; pass the value down"),
    (r"\bstd::w?regex\b", _everywhere, "std::regex recurses without bound on hostile input"),
    (r"\b(sleep_for|sleep_until|usleep|nanosleep)\b|(?<![\w.>:])sleep\s*\(", _src_and_tests_outside(),
     "nothing sleeps: wait on a condition through Clock, or advance the fake clock"),
    # Shells live in real time (sockets, gRPC deadlines), and so do the hang limits of tests; cores never do.
    (r"\b(system|steady|high_resolution)_clock::now\b|(?<![\w.>:])(std::)?time\s*\(\s*(nullptr|NULL|0)\s*\)",
     _outside("src/base/", "src/net/", "src/bus/server/"), "ask the injected Clock"),
    (r"(?<![\w.>])(std::)?s?rand\s*\(", _src_and_tests_outside("src/base/"), "ask the injected Rng"),
    (r"\bstd::random_device\b", _outside("src/base/"), "ask the injected Rng"),  # a test may seed itself, and says so
    (r"(?<![\w.>])(std::)?(f?printf|puts|fputs)\s*\(|\bstd::(cout|cerr|clog)\b",
     _outside("src/app/", "src/base/log.", "src/base/check."),
     "modules return values or log; only app/ prints"),
    (r"(?<![\w.>:])(std::)?(abort|exit|quick_exit|_exit)\s*\(", _outside("src/app/", "src/base/"),
     "only app/ ends the process (MP_CHECK for what cannot happen)"),
]


def _catch_bodies(code):
    """(offset, what is caught, body) of every catch block."""
    for match in re.finditer(r"\bcatch\s*\(([^)]*)\)\s*\{", code):
        depth, end = 1, match.end()
        while depth and end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        yield match.start(), match.group(1).strip(), code[match.end():end - 1]


def check_banned(tree):
    for path, code in tree.stripped.items():
        for pattern, applies, advice in BANNED:
            if not applies(path):
                continue
            for match in re.finditer(pattern, code):
                yield Finding(path, line_of(code, match.start()), "banned", f"{match.group().strip()}: {advice}")
        for offset, caught, body in _catch_bodies(code):
            handled = re.search(r"\bthrow\b|\bFail\b|\bcurrent_exception\b", body)
            if not body.strip() or (caught == "..." and not handled and not is_test(path)):
                yield Finding(path, line_of(code, offset), "banned",
                              f"catch ({caught}) swallows: turn it into an Error, or rethrow")


def check_lines(tree):
    for path, text in tree.texts.items():
        if not path.endswith(CODE + (".py", ".sh", ".cmake", ".proto", "/CMakeLists.txt")):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > COLUMNS_MAX:
                yield Finding(path, number, "lines", f"{len(line)} columns, at most {COLUMNS_MAX}")


def check_readme(tree):
    folders = {os.path.dirname(path) for path in tree.code() if path.startswith("src/")}
    for folder in sorted(folders):
        if folder + "/README.md" not in tree.texts:
            yield Finding(folder + "/README.md", 0, "readme", "is missing: why the module exists, what belongs here, "
                          "what does not, where to start reading")


# Spelled in two halves, so that this file does not find itself.
MACHINE_PATHS = [first + second for first, second in
                 [("/wo", "rk/"), ("/ro", "ot/"), ("/fa", "rm/"), ("/ho", "me/"), ("../sha", "red")]]


def check_paths(tree):
    pattern = re.compile("|".join(r"(?<![\w.~-])" + re.escape(path) if path.startswith("/") else re.escape(path)
                                  for path in MACHINE_PATHS))
    for path, text in tree.texts.items():
        for match in pattern.finditer(text):
            yield Finding(path, line_of(text, match.start()), "paths", f"{match.group()} is a place on one machine")


EMPTY_NOUNS = re.compile(r"(^|_)(util|utils|helper|helpers|manager|misc|common|impl)(_|$)")


def check_names(tree):
    for path in tree.texts:
        stem, extension = os.path.splitext(os.path.basename(path))
        if extension not in CODE + (".py", ".sh", ".cmake", ".proto"):
            continue
        if not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", stem):
            yield Finding(path, 0, "names", "file names are snake_case")
        elif EMPTY_NOUNS.search(stem):
            yield Finding(path, 0, "names", "the name says nothing; name the noun that lives here")


def check_todo(tree):
    for path, text in tree.texts.items():
        if not path.endswith(CODE + (".proto",)):
            continue
        for match in re.finditer(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))", text):
            yield Finding(path, line_of(text, match.start()), "todo", f"{match.group()} without an issue: TODO(#7)")


RULES = [check_modules, check_cycles, check_headers, check_banned, check_lines, check_readme, check_paths, check_names,
         check_todo]


def check(tree):
    return sorted(finding for rule in RULES for finding in rule(tree))


# --- What is long ---------------------------------------------------------------------------------------------------


def functions(text):
    """(lines, first line, name) of the functions that begin in the first column, as our format writes them."""
    begin = None
    for number, line in enumerate(text.splitlines(), 1):
        if line == "}":
            if begin is not None:
                yield number - begin[0] + 1, begin[0], begin[1]
            begin = None
        elif re.match(r"(\}|namespace\b|class\b|struct\b|enum\b)", line):
            begin = None
        elif re.match(r"[A-Za-z_].*[({,]$", line) and begin is None:
            name = re.search(r"([\w:~]+)\s*\(", line)
            begin = (number, name.group(1) if name else line.strip())


def report_longest(tree):
    files = sorted(((text.count("\n"), path) for path, text in tree.code().items()), reverse=True)[:10]
    print("longest files: " + ", ".join(f"{path} {lines}" for lines, path in files))
    longest = sorted(((lines, f"{name} ({path}:{first})") for path, text in tree.stripped.items()
                      for lines, first, name in functions(text)), reverse=True)[:10]
    print("longest functions: " + ", ".join(f"{name} {lines}" for lines, name in longest), flush=True)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tree = Tree.read(root)
    if not tree.modules:
        sys.exit(f"{root}/cmake/modules.txt is missing or empty: nothing could be checked")
    findings = check(tree)
    for finding in findings:
        print(finding)
    report_longest(tree)
    print(f"tidy: {len(findings)} findings in {len(tree.texts)} files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
