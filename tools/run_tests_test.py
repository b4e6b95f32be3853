#!/usr/bin/env python3
"""Shows that the test plan counts what did not run: a skip that nobody sees is a hole in the plan."""

import os
import tempfile
import unittest

import run_tests

GTEST = """[==========] 3 tests from 1 test suite ran. (0 ms total)
[  PASSED  ] 1 test.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] Thing.First
[  SKIPPED ] Thing.Second
"""
JUNIT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="dev" tests="5" failures="1" disabled="1" skipped="1">
  <testcase name="good" status="run"><system-out>fine</system-out></testcase>
  <testcase name="gtest" status="run"><system-out>{gtest}</system-out></testcase>
  <testcase name="python" status="run"><system-out>Ran 4 tests in 0.1s\n\nOK (skipped=3)\n</system-out></testcase>
  <testcase name="bad" status="fail"><failure message=""/><system-out></system-out></testcase>
  <testcase name="left_out" status="notrun"><skipped message=""/></testcase>
</testsuite>
"""


class SkipCountTest(unittest.TestCase):
    def test_googletest_and_unittest_skips(self):
        self.assertEqual(run_tests.count_program_skips(GTEST), 2)
        self.assertEqual(run_tests.count_program_skips("FAILED (failures=1, skipped=4)"), 4)
        self.assertEqual(run_tests.count_program_skips("[  PASSED  ] 3 tests.\nOK\n"), 0)

    def test_a_whole_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ctest.xml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(JUNIT.format(gtest=GTEST))
            self.assertEqual(run_tests.read_junit(path), (5, 1, 1 + 1 + 2 + 3))


if __name__ == "__main__":
    unittest.main()
