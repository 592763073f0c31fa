#!/usr/bin/env python3
"""Adds up the JUnit results of several test runs: names what failed, gives the reason of every skip, and ends with
the line 'N passed, N failed, N skipped'."""
import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


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


def failed_programs(path, root):
    """Test programs that ended badly though none of their cases says so: a sanitizer's finding, a crash at the end."""
    bad = [(suite.get("name"), case.get("name")) for suite in root.iter("testsuite") for case in suite.iter("testcase")
           if case.find("failure") is not None or case.find("error") is not None]
    for line in pathlib.Path(path.removesuffix(".junit.xml") + ".json").read_text().splitlines():
        test = json.loads(line)
        if test["result"] in ("OK", "SKIP", "EXPECTEDFAIL"):
            continue
        if not any(suite.startswith(f"tutti.{test['name']}.") or case == test["name"] for suite, case in bad):
            yield f"{path.split('/')[0]}: {test['name']}: {test['result']}, exit status {test['returncode']}"


def main(paths):
    passed, failed, skips = 0, [], collections.Counter()
    for path in paths:
        try:
            root = ElementTree.parse(path).getroot()
        except (OSError, ElementTree.ParseError) as error:
            failed.append(f"{path}: no results ({error})")
            continue
        for case in root.iter("testcase"):
            name = f"{path.split('/')[0]}: {case.get('classname') or ''} {case.get('name')}"
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(name)
            elif case.find("skipped") is not None:
                skips[f"{name}: {reason_of(case)}"] += 1
            else:
                passed += 1
            for test, reason in skips_inside(case):
                skips[f"{name}, {test}: {reason}"] += 1
        failed += failed_programs(path, root)
    for line in skips:
        print(f"skipped: {line}")
    for line in failed:
        print(f"FAILED: {line}")
    print(f"{passed} passed, {len(failed)} failed, {sum(skips.values())} skipped")
    return 1 if failed or passed == 0 else 0


sys.exit(main(sys.argv[1:]))
