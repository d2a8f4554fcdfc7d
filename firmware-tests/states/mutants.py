#!/usr/bin/env python3
"""Changes of lib/elastic/ that the search of states.h must find.

mutants.py planted [SECONDS [NAME]]: nine defects that the rule of lib/DESIGN.md forbids, each of which must be found
mutants.py COUNT SEED [SECONDS [MINUTES]]: seeded changes of a token and deleted statements: the share that is found by
the search in SECONDS of the processor each, and by it or a suite of the view change, in MINUTES in all
Each is one object, linked in front of the library into a program of its own in $BUILD/states. A mutant that gives the
same object, or does not compile, is replaced by the next. Ends with 1 where a planted defect is not found.
"""
import os, random, re, resource, signal, subprocess, sys, time

BUILD = os.environ.get("BUILD", "build")
OUT = BUILD + "/states"
CC = os.environ.get("CC", "gcc").split()
FLAGS = "-std=c11 -D_GNU_SOURCE -w -O1 -g0 -ffunction-sections -fno-strict-aliasing -I. -Ilib -Iconfig".split()
SEARCH = [BUILD + "/firmware-tests/states/%s.o" % n
          for n in "program_states states_driver states_world states_rules states_search".split()]
FILES = ["lib/elastic/%s.c" % n
         for n in "quorum view view_agree view_begin view_frames view_lead view_take recovering".split()]
LIBS = [BUILD + "/libgradientflow.a", "-lconfig", "-lsodium", "-ldl", "-lrt", "-lm", "-pthread"]
# Those that run the view change, the quickest first.
SUITES = ("view_growth members_frames members_link members members_fail leave view_schedules join_death epoch "
          "shrink_commit rejoin suspended edges shrink views failure").split()
PLANTED = {  # a defect: its file, and what stands in the place of what
    "the old waits rule":
        ["quorum", ("waits && (all_answer || (member->view == members->view.view));", "waits; (void)all_answer;")],
    "a list newer than the answers":
        ["quorum", ("&members->view.led, false)", "&members->view.noted, false)")],
    "a forgotten proposal":
        ["view_agree", ("if ((view->accepted_view == 0) && !proposal_make", "if (!proposal_make")],
    "no promise check":
        ["view_take", ("(epoch != view->epoch.epoch) || (number < view->view)", "epoch != view->epoch.epoch"),
         ("if (number != members->view.view) number = 0;", "")],
    "the lowest proposal":
        ["view_take", ("(number <= view->accepted_view)",
                       "(number == 0) || ((view->accepted_view != 0) && (number >= view->accepted_view))")],
    "half is enough":
        ["quorum", ("(2 * count > of)", "(2 * count >= of)")],
    "reports of lower views counted":
        ["view_agree", ("member->answered && (member->view == view->view) && ", "")],
    "any incarnation is mine":
        ["quorum", ("return took == members->incarnation;", "return true;")],
    "an id's other process after a commit shut it out":
        ["quorum", ("!gf_view_joins(members) && (list->epoch == members->view.epoch.epoch + 1);",
                    "!gf_view_joins(members);")],
}
TOKEN = re.compile(r"""(?P<skip>/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|^\s*\#[^\n]*)
                     |(?P<number>\b\d+u?\b)|(?P<word>[A-Za-z_]\w*)
                     |(?P<op>\+\+|--|->|[-+*/%&|^<>=!]=|&&|\|\||<<|>>|[-+*/%&|<>!])
                     |(?P<other>\S)""", re.S | re.M | re.X)
SWAP = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "&&": "||", "||": "&&",
        "true": "false", "false": "true", "!": "", "++": "--", "+=": "-=", "|=": "&=", "&=": "|="}


def sites(text):
    """(offset, old, new) of each change: a token, a condition negated, a statement deleted"""
    for m in TOKEN.finditer(text):
        token, before = m.group(), text[:m.start()].rstrip()[-1:]
        if m.lastgroup == "number":
            yield m.start(), token, str(int(token.rstrip("u")) + 1) + ("u" if token.endswith("u") else "")
        elif token in SWAP and (token not in "+-" or re.match(r"[\w)\]]", before)):
            yield m.start(), token, SWAP[token]
    for m in re.finditer(r"\bif \((.*)\)( \{)?$|\bif \((.*)\) (?=return|continue)", text, re.M):
        condition = m.group(1) or m.group(3)
        if condition.count("(") == condition.count(")"):
            yield m.start(), "if (" + condition + ")", "if (!(" + condition + "))"
    for m in re.finditer(r"^ +((?!return|break|else|case|for|if|while|const|static|struct|bool|uint|\(void\))"
                         r"[a-z][^;{}\n]*;)$", text, re.M):
        yield m.start(1), m.group(1), ";"


def build(path, text):
    """the program, or None: it does not compile, or its object is that of the source"""
    source, object_, plain = OUT + "/mutant.c", OUT + "/mutant.o", OUT + "/plain.o"
    for content, out in ((text, object_), (open(path).read(), plain)):
        open(source, "w").write("#line 1 \"%s\"\n" % path + content)
        if subprocess.run(CC + FLAGS + ["-c", source, "-o", out], stderr=subprocess.DEVNULL).returncode != 0:
            return None
    if open(object_, "rb").read() == open(plain, "rb").read():
        return None
    subprocess.run(CC + ["-o", OUT + "/mutant"] + SEARCH + [object_] + LIBS, check=True)
    return OUT + "/mutant"


def limited(seconds):
    """of the processor: on a busy machine the clock says nothing"""
    return lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))


def found(program, seconds, *more):
    """what the search says of it; None: nothing"""
    done = subprocess.run(["nice", "-n", "10", program, str(seconds), *more], capture_output=True, text=True,
                          preexec_fn=limited(10 * seconds + 20))
    if done.returncode == -signal.SIGXCPU:
        return "it does not end"
    lines = [row for row in done.stdout.splitlines() if "does not hold" in row]
    return lines[0] if lines else None if done.returncode == 0 else "it ends with %d" % done.returncode


def suite_found():
    """the first suite that fails with the mutant that was built last; None: none does"""
    for name in SUITES:
        program = OUT + "/suite"
        objects = ["%s/firmware-tests/%s.o" % (BUILD, n) for n in ("sim/test_" + name, "support/suite_main")]
        subprocess.run(CC + ["-o", program] + objects + [OUT + "/mutant.o", BUILD + "/libtest.a",
                       BUILD + "/libgradientflow_sim.a"] + LIBS + ["-lcmocka", "-Wl,--gc-sections"], check=True)
        done = subprocess.run(["nice", "-n", "10", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              preexec_fn=limited(100))
        if done.returncode != 0:
            return "test_" + name
    return None


def planted(seconds, only):
    missed = 0
    for name, (file, *changes) in PLANTED.items():
        path = "lib/elastic/%s.c" % file
        text = open(path).read()
        for old, new in changes:
            assert text.count(old) == 1, name + ": " + path + " has changed"
            text = text.replace(old, new)
        if only not in name:
            continue
        said = found(build(path, text), seconds)
        missed += said is None
        print("%s planted: %s: %s" % ("ok" if said else "not ok", name, said or "it was not found"), flush=True)
    return missed


def drawn(count, seed, seconds, minutes):
    every = [(path, *site) for path in FILES for site in sites(open(path).read())]
    random.Random(seed).shuffle(every)
    until = time.monotonic() + 60 * minutes
    tried = searched = suites = 0
    for path, at, old, new in every:
        if tried == count or time.monotonic() > until:
            break
        text = open(path).read()
        program = build(path, text[:at] + new + text[at + len(old):])
        if program is None:
            continue
        tried += 1
        by_search = found(program, seconds)
        by_suite = None if by_search else suite_found()
        searched += by_search is not None
        suites += by_suite is not None
        print("%s %s:%d: %s -> %s%s" % ("found" if by_search else "suite" if by_suite else "MISSED", path,
              text.count("\n", 0, at) + 1, old, new or "nothing", ": " + (by_search or by_suite or "")), flush=True)
    print("%d of %d found by the search, %d with the suites (of %d that there are)" %
          (searched, tried, searched + suites, len(every)))


os.makedirs(OUT, exist_ok=True)
if sys.argv[1] == "planted":
    sys.exit(planted(float(sys.argv[2]) if len(sys.argv) > 2 else 60, sys.argv[3] if len(sys.argv) > 3 else "") > 0)
drawn(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 6,
      float(sys.argv[4]) if len(sys.argv) > 4 else 600)
