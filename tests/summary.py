#!/usr/bin/env python3
"""Adds up the JUnit results of several test runs: names what failed, gives the reason of every skip, and ends with
the line 'N passed, N failed, N skipped'."""
import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


lines_max = 24  # of what one failed test said


def reason_of(case):
    """A skip's own words, from the element or from what the test printed."""
    skipped = case.find("skipped")
    text = (skipped.get("message") or skipped.text or "") if skipped is not None else ""
    printed = case.findtext("system-out") or ""
    match = re.search(r"^skip(?:ped)?: *(.+)$", printed, re.M | re.I)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and re.search(r":\d+$", lines[0]):  # where in the source; the words follow
        del lines[0]
    return lines[0] if lines else match[1] if match else "no reason printed"


def skips_inside(case):
    """What a script of unittest skipped while it passed or failed as a whole."""
    printed = (case.findtext("system-out") or "") + (case.findtext("system-err") or "")
    return [(match[1], match[2]) for match in re.finditer(r"^(\w+) \(.*\.\.\. skipped ['\"](.*)['\"]$", printed, re.M)]


def words_of(case):
    """What a failed test said of it: gtest's message, or else what a sanitizer or the runtime printed, and the last lines."""
    failure = case.find("failure") if case.find("failure") is not None else case.find("error")
    text = (failure.get("message") or failure.text or "") if failure is not None else ""
    printed = (case.findtext("system-out") or "") + "\n" + (case.findtext("system-err") or "")
    return told(text if text.strip() else printed)


def told(text):
    """The lines of a long text that tell why it ended badly."""
    lines = [line for line in text.splitlines() if line.strip()]
    telling = re.compile(r"Sanitizer|runtime error:|^\s*#\d+ |terminate called|what\(\)|Assertion|Failure$|FAILED|\.cc:\d+")
    chosen = [i for i, line in enumerate(lines) if telling.search(line)][:lines_max] + list(range(len(lines)))[-8:]
    return [lines[i][:240] for i in sorted(set(chosen))][:lines_max + 8]


def failed_programs(path, root):
    """Test programs that ended badly though none of their cases says so: a sanitizer's finding, a crash at the end."""
    bad = [(suite.get("name"), case.get("name")) for suite in root.iter("testsuite") for case in suite.iter("testcase")
           if case.find("failure") is not None or case.find("error") is not None]
    for line in pathlib.Path(path.removesuffix(".junit.xml") + ".json").read_text().splitlines():
        test = json.loads(line)
        if test["result"] in ("OK", "SKIP", "EXPECTEDFAIL"):
            continue
        if not any(suite.startswith(f"tutti.{test['name']}.") or case == test["name"] for suite, case in bad):
            printed = (test.get("stdout") or "") + "\n" + (test.get("stderr") or "")
            yield (f"{path.split('/')[0]}: {test['name']}: {test['result']}, exit status {test['returncode']}", told(printed))


def main(paths):
    passed, failed, skips = 0, [], collections.Counter()
    for path in paths:
        try:
            root = ElementTree.parse(path).getroot()
        except (OSError, ElementTree.ParseError) as error:
            failed.append((f"{path}: no results ({error})", []))
            continue
        for case in root.iter("testcase"):
            name = f"{path.split('/')[0]}: {case.get('classname') or ''} {case.get('name')}"
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append((name, words_of(case)))
            elif case.find("skipped") is not None:
                skips[f"{name}: {reason_of(case)}"] += 1
            else:
                passed += 1
            for test, reason in skips_inside(case):
                skips[f"{name}, {test}: {reason}"] += 1
        failed += failed_programs(path, root)
    for line in skips:
        print(f"skipped: {line}")
    for line, words in failed:
        print(f"FAILED: {line}")
        for word in words:
            print(f"    {word}")
    print(f"{passed} passed, {len(failed)} failed, {sum(skips.values())} skipped")
    return 1 if failed or passed == 0 else 0


sys.exit(main(sys.argv[1:]))
