#!/usr/bin/env python3
"""docs/api.md as a program: every function of the header has a section with an example that runs and with wrong input
whose sentence is the one that the page gives. Usage: api_test.py TUTTI_H API_MD TUTTI_RUN CC [flags to compile and link]"""
import pathlib
import re
import subprocess
import sys
import tempfile

header, page, tutti_run, *compile_command = sys.argv[1:]
RANKS = 4

# What the page's wrong calls are compared with. A sentence's "…" stands for anything.
CHECKS = r"""
static int failures = 0;
static int matches(const char* pattern, const char* text) {
  const char* gap = strstr(pattern, "\xe2\x80\xa6");
  const size_t before = gap == NULL ? strlen(pattern) : (size_t)(gap - pattern);
  if (strncmp(pattern, text, before) != 0) return 0;
  if (gap == NULL) return text[before] == 0;
  for (const char* rest = text + before;; ++rest) {
    if (matches(gap + 3, rest)) return 1;
    if (*rest == 0) return 0;
  }
}
static void expect(const char* where, tuttiResult_t wanted, const char* sentence, tuttiResult_t result) {
  const char* said = tuttiGetLastError(NULL);
  if (result == wanted && matches(sentence, said)) return;
  fprintf(stderr, "%s\n  the page says %d: %s\n  the library   %d: %s\n", where, wanted, sentence, result, said);
  ++failures;
}
"""

MAIN = """
int main(void) {
  tuttiComm_t comm;
  int rank, nranks;
  OK(tuttiCommInitEnv(&comm, NULL));
  OK(tuttiCommUserRank(comm, &rank));
  OK(tuttiCommCount(comm, &nranks));
  assert(nranks == %d);
%s
  OK(tuttiCommDestroy(comm));
  if (failures == 0) printf("all examples ran\\n");
  return failures != 0;
}
"""


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def wrong_line(line):
    """A line of a block of wrong calls, with its result compared."""
    found = re.fullmatch(r"\s*(\w+\(.*\));\s*// (tutti\w+): (.*)", line)
    if found is None:
        return line
    call, result, sentence = found.groups()
    return f"expect({quoted(call)}, {result}, {quoted(sentence)}, {call});"


def main():
    functions = set(re.findall(r"TUTTI_API [\w *]*?\b(tutti\w+)\(", pathlib.Path(header).read_text()))
    returning = set(re.findall(r"TUTTI_API tuttiResult_t (tutti\w+)\(", pathlib.Path(header).read_text()))
    text = pathlib.Path(page).read_text()
    preamble, bodies, problems = [], [], []
    sections = re.split(r"^### ", text, flags=re.M)
    for section in sections:
        title = section.split("\n", 1)[0].strip()
        blocks = re.findall(r"^```c( \w+)?\n(.*?)^```", section, flags=re.M | re.S)
        for kind, code in blocks:
            if kind == " program":
                preamble.append(code)
            elif kind == " wrong":
                lines = [wrong_line(line) for line in code.splitlines()]
                if not any(line.startswith(f"expect(\"{title}(") for line in lines):
                    problems.append(f"{title}: no wrong call of it has a sentence")
                bodies.append((title + ", wrong", "\n".join(lines)))
            elif kind == "":
                bodies.append((title, code))
        if not title.startswith("tutti"):
            continue
        kinds = [kind for kind, _ in blocks]
        if "" not in kinds or not any(kind == "" and title + "(" in code for kind, code in blocks) and title != "tuttiCommInitEnv":
            problems.append(f"{title}: no example calls it")
        if title in returning and " wrong" not in kinds and "wrong" not in section and "no input" not in section:
            problems.append(f"{title}: what does it say to wrong input?")
    titles = {section.split("\n", 1)[0].strip() for section in sections[1:]}
    problems += [f"{name}: has no section in the page" for name in sorted(functions - titles)]
    problems += [f"{name}: the page has a section for it, the header does not" for name in sorted(titles - functions)]
    if problems:
        sys.exit("\n".join(problems))

    program = preamble[0] + CHECKS + "".join(preamble[1:])
    calls = ""
    for i, (title, code) in enumerate(bodies):
        program += f"\n/* {title} */\nstatic void example_{i}(tuttiComm_t comm, int rank, int nranks) {{\n"
        program += f"  (void)comm; (void)rank; (void)nranks;\n{code}\n}}\n"
        # A rank may be ahead of the others by an example that is not collective, but no further.
        calls += f"  example_{i}(comm, rank, nranks);\n  OK(tuttiBarrier(comm, NULL));\n"
    program += MAIN % (RANKS, calls)
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "examples.c"), pathlib.Path(folder, "examples")
        source.write_text(program)
        subprocess.run([compile_command[0], "-std=c11", "-Wall", "-Wextra", "-Werror", str(source), "-o", str(binary),
                        *compile_command[1:], "-lm"]).returncode == 0 or sys.exit("the page's program does not compile")
        ran = subprocess.run([str(pathlib.Path(tutti_run).resolve()), "-n", str(RANKS), str(binary)], cwd=folder, capture_output=True, text=True, timeout=100)
        if ran.returncode != 0 or ran.stdout.count("all examples ran") != RANKS:
            sys.exit(f"exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}")
    print(f"{len(functions)} functions, {len(bodies)} examples")


main()
