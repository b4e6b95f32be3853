#!/usr/bin/env python3
"""Shows that each rule of tidy.py fails on a bad sample and passes a good one. A rule without a sample fails too."""

import unittest

import tidy

MODULES = """# the table
base:
net: base
bus/keys: base
bus/core: base bus/keys
bus/server: base net bus/core
app: base
"""
GOOD_HEADER = "// Thing: what it is for.\n#pragma once\n"


def tree(files):
    return tidy.Tree({"cmake/modules.txt": MODULES, **files})


class RuleTest(unittest.TestCase):
    covered = set()

    def assert_flags(self, rule, files, message, line=None):
        found = list(rule(tree(files)))
        self.assertEqual(len(found), 1, [str(finding) for finding in found])
        self.assertIn(message, found[0].message)
        if line is not None:
            self.assertEqual(found[0].line, line)
        RuleTest.covered.add(rule)

    def assert_passes(self, rule, files):
        self.assertEqual([str(finding) for finding in rule(tree(files))], [])


class ModulesTest(RuleTest):
    def test_an_arrow_that_is_not_in_the_table(self):
        self.assert_flags(tidy.check_modules, {"src/bus/keys/a.cc": '\n#include "net/http.h"\n'},
                          "bus/keys may not include net", line=2)

    def test_the_longest_module_name_decides(self):
        self.assert_flags(tidy.check_modules, {"src/bus/keys/a.cc": '#include "bus/core/bus.h"\n'},
                          "bus/keys may not include bus/core")
        self.assert_passes(tidy.check_modules, {"src/bus/core/a.cc": '#include "bus/keys/key.h"\n'})

    def test_nobody_includes_app(self):
        self.assert_flags(tidy.check_modules, {"src/net/a.cc": '#include "app/main.h"\n'}, "net may not include app")

    def test_an_include_that_is_not_rooted_at_src(self):
        self.assert_flags(tidy.check_modules, {"src/net/a.cc": '#include "a.h"\n'}, "rooted at src/")

    def test_a_source_outside_every_module(self):
        self.assert_flags(tidy.check_modules, {"src/store/a.cc": "int a;\n"}, "lies in no module")

    def test_public_headers_and_tests_are_open(self):
        self.assert_passes(tidy.check_modules, {
            "src/base/a.cc": '#include "moonpool/result.h"\n',
            "src/base/a_test.cc": '#include "bus/core/bus.h"\n#include "support/fake_clock.h"\n',
            "tests/fuzz/a.cc": '#include "net/http.h"\n'})

    def test_heavy_libraries_stay_at_home(self):
        for library in ("boost/asio.hpp", "boost/beast/http.hpp", "grpcpp/server.h", "google/protobuf/message.h"):
            self.assert_flags(tidy.check_modules, {"src/bus/keys/a.cc": f"#include <{library}>\n"}, "stay in")
        self.assert_passes(tidy.check_modules, {"src/net/a.cc": "#include <boost/asio.hpp>\n",
                                                "src/bus/server/a.cc": '#include "kvcache_bus.pb.h"\n'})

    def test_heavy_libraries_do_not_leak_through_a_header(self):
        self.assert_flags(tidy.check_modules, {"src/net/http.h": GOOD_HEADER + "#include <boost/asio.hpp>\n",
                                               "src/bus/server/a.cc": '#include "net/http.h"\n'}, "stay in net")


class CyclesTest(RuleTest):
    def test_headers_that_include_each_other(self):
        self.assert_flags(tidy.check_cycles, {
            "src/net/a.h": '#include "net/b.h"\n', "src/net/b.h": '#include "net/c.h"\n',
            "src/net/c.h": '#include "net/a.h"\n'}, "net/a.h, net/b.h, net/c.h")

    def test_modules_that_include_each_other(self):
        self.assert_flags(tidy.check_cycles, {"src/net/a.cc": '#include "base/b.h"\n',
                                              "src/base/c.cc": '#include "net/d.h"\n'}, "base, net")

    def test_a_table_that_goes_round(self):
        self.assert_flags(tidy.check_cycles, {"cmake/modules.txt": "base: net\nnet: base\n"}, "table itself")

    def test_a_diamond_is_no_cycle(self):
        self.assert_passes(tidy.check_cycles, {
            "src/net/a.h": '#include "net/b.h"\n#include "net/c.h"\n', "src/net/b.h": '#include "net/d.h"\n',
            "src/net/c.h": '#include "net/d.h"\n', "src/net/d.h": "", "src/net/d.cc": '#include "net/a.h"\n'})


class HeadersTest(RuleTest):
    def test_no_pragma_once(self):
        self.assert_flags(tidy.check_headers, {"src/net/a.h": "// What it is for.\nint a;\n"}, "#pragma once")

    def test_no_comment_on_top(self):
        self.assert_flags(tidy.check_headers, {"include/moonpool/a.h": "#pragma once\n"}, "no comment")

    def test_good(self):
        self.assert_passes(tidy.check_headers, {"src/net/a.h": GOOD_HEADER, "src/net/a.cc": "int a;\n"})


class BannedTest(RuleTest):
    def test_calls_that_hide_something(self):
        for sample in ('getenv("X");', "std::regex r;", "std::this_thread::sleep_for(d);", "usleep(1);", "sleep(1);",
                       "std::chrono::steady_clock::now();", "system_clock::now();", "time(nullptr);", "rand();",
                       "std::rand();", "srand(1);", "std::random_device d;", 'printf("x");', 'std::printf("x");',
                       'fprintf(stderr, "x");', "std::cout << 1;", "abort();", "exit(1);"):
            self.assert_flags(tidy.check_banned, {"src/bus/core/a.cc": f"\nvoid F() {{ {sample} }}\n"}, ":", line=2)

    def test_sleeping_tests(self):
        for path in ("tests/fuzz/a_test.cc", "src/net/a_test.cc"):
            self.assert_flags(tidy.check_banned, {path: "void F() { sleep_for(1ms); }\n"}, "nothing sleeps")

    def test_where_each_call_is_at_home(self):
        self.assert_passes(tidy.check_banned, {
            "src/app/a.cc": 'void F() { getenv("X"); printf("x"); std::cout << 1; exit(1); }\n',
            "src/net/http_server.cc": "auto Now() { return steady_clock::now(); }\n",
            "src/base/clock.h": "auto Now() { return steady_clock::now(); }\n",
            "src/base/rng.cc": "std::random_device d;\n",
            "src/net/a_test.cc": 'void F() { printf("seed %u", std::random_device{}()); }\n'})

    def test_words_that_only_look_like_them(self):
        self.assert_passes(tidy.check_banned, {"src/net/a.cc": (
            "// sleep_for(1) and getenv( in a comment; rand()\n/* std::regex */\n"
            'const char* s = "rand() std::regex";\nauto r = R"x(rand() " getenv()x";\n'
            'void F() { operand(); o.exit(1); queue.sleep(2); snprintf(b, 3, "x"); run_time(0); char c = \'"\'; }\n')})

    def test_a_catch_that_swallows(self):
        for body in ("", " /* nothing */ ", " log(); "):
            self.assert_flags(tidy.check_banned, {"src/net/a.cc": f"void F() {{ try {{ }} catch (...) {{{body}}} }}\n"},
                              "swallows")
        self.assert_flags(tidy.check_banned,
                          {"src/net/a.cc": "void F() { try { } catch (const std::exception& e) { } }\n"}, "swallows")

    def test_a_catch_that_answers(self):
        self.assert_passes(tidy.check_banned, {"src/net/a.cc": (
            "R F() { try { } catch (...) { return Fail(ErrorCode::kIo, w); } }\n"
            "R G() { try { } catch (...) { if (x) { y(); } throw; } }\n"
            "R H() { try { } catch (const std::exception& e) { result = e.what(); } }\n")})


class LinesTest(RuleTest):
    def test_too_long(self):
        self.assert_flags(tidy.check_lines, {"src/net/a.cc": "\n" + "x" * 121 + "\n"}, "121 columns", line=2)
        self.assert_flags(tidy.check_lines, {"src/net/CMakeLists.txt": "x" * 121}, "121 columns")

    def test_just_right(self):
        self.assert_passes(tidy.check_lines, {"src/net/a.cc": "x" * 120 + "\n", "docs/a.md": "x" * 200})


class ReadmeTest(RuleTest):
    def test_missing(self):
        self.assert_flags(tidy.check_readme, {"src/bus/keys/a.cc": ""}, "is missing")

    def test_present(self):
        self.assert_passes(tidy.check_readme, {"src/net/a.cc": "", "src/net/README.md": "# net\n"})


class PathsTest(RuleTest):
    def test_each_machine_path(self):
        for place in tidy.MACHINE_PATHS:
            self.assert_flags(tidy.check_paths, {"docs/a.md": f"one\nsee {place}x\n"}, place, line=2)

    def test_relative_names_are_fine(self):
        self.assert_passes(tidy.check_paths, {"docs/a.md": "a/wo" "rk/b ~/ro" "ot/ frame" "wo" "rk/\n"})


class NamesTest(RuleTest):
    def test_not_snake_case(self):
        for name in ("src/net/HttpServer.cc", "tools/run-tests.py", "src/net/a__b.h"):
            self.assert_flags(tidy.check_names, {name: ""}, "snake_case")

    def test_nouns_that_say_nothing(self):
        for name in ("src/net/utils.h", "src/net/http_helper.cc", "src/net/slot_manager.h", "src/net/common.h"):
            self.assert_flags(tidy.check_names, {name: ""}, "says nothing")

    def test_good(self):
        self.assert_passes(tidy.check_names, {"src/net/http_server2.cc": "", "README.md": "", "python/__init__.md": ""})


class TodoTest(RuleTest):
    def test_without_an_issue(self):
        self.assert_flags(tidy.check_todo, {"src/net/a.cc": "// " "TODO: later\n"}, "without an issue")

    def test_with_an_issue(self):
        self.assert_passes(tidy.check_todo, {"src/net/a.cc": "// TODO(#7): later\n"})


class LongestTest(unittest.TestCase):
    def test_finds_functions_by_our_format(self):
        text = ("namespace a {\nclass B {\n  void C() {\n  }\n};\n\nint D(int x) {\n  return x;\n}\n\n"
                "void E::F(int long_name,\n          int other) {\n}\n}  // namespace a\n")
        self.assertEqual(list(tidy.functions(text)), [(3, 7, "D"), (3, 11, "E::F")])


class ZCompletenessTest(unittest.TestCase):
    """Runs last, by its name."""

    def test_every_rule_has_a_sample_that_fails(self):
        self.assertEqual(set(tidy.RULES) - RuleTest.covered, set())


if __name__ == "__main__":
    unittest.main()
