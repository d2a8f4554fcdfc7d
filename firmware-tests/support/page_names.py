#!/usr/bin/env python3
# What the pages name is there: `page_names.py PAGE..` prints each name that is not, with page and
# line, and exits with 1.
#     `folder/file.c`          a path from the top, from the page's folder or from firmware-tests/
#     make TARGET              a target of the makefiles
#     gf-TOOL .. --option      an option that the tool's man page has
#     `group.key`              a setting of gradientflow.cfg(5)
#     `gf_function()`          in a header
#     `test_NAME`, `program_NAME` and their like: a test's file
# Only what stands between backticks or in a block of code is looked at. Names of what is gone stand
# in pages without backticks.
import glob
import os
import re
import sys

CODE = re.compile(r'`([^`]+)`')
PATH = re.compile(
    r'(?<![\w/.$}>-])((?:lib|ops|drivers|config|tools|firmware-tests)/[\w./*?-]*\w[\w/*?]*)'
)
TARGET = re.compile(
    r'(?:^|[\s(|&;])make (?:-\w+ )*(?:[A-Z_]+=(?:"[^"]*"|\S*) )*([a-z][a-z0-9-]*)(?![\w/-])'
)
TOOL = re.compile(r'(?<![\w-])(gf-(?:run|perf|plan|train|check|trace|coordinator))(?![\w-])')
OPTION = re.compile(r'(?<=\s)--([a-z][a-z-]*)')
SETTING = re.compile(r'^([a-z]+)\.([a-z_]+)(?: ?=.*)?$')
CALL = re.compile(r'\b(gf_[a-z0-9_]+)\(')
ENDINGS = ('h', 'c', 'cfg', 'cuh', 'md', 'sbatch', 'yaml')  # of files
TEST = re.compile(r'^(?:test|program|bench|soak|fuzz)_[a-z0-9_]+(?:\.(?:sh|c|py))?$')


def text_of(path):
    with open(path, encoding='utf-8', errors='replace') as file:
        return file.read()


class Tree:
    def __init__(self):
        makefiles = [
            'Makefile',
            'firmware-tests/tests.mk',
            *glob.glob('*/*.mk'),
            *glob.glob('*/*/*.mk'),
        ]
        self.targets = set(
            re.findall(r'^([a-z][a-z0-9-]*):', '\n'.join(map(text_of, makefiles)), re.M)
        )
        self.options = {
            os.path.basename(page)[:-2]: set(
                option.replace('\\', '') for option in re.findall(r'Fl -([a-z\\-]+)', text_of(page))
            )
            for page in glob.glob('tools/*/gf-*.1')
        }
        man = text_of('config/gradientflow.cfg.5')
        self.groups = {}
        group = None
        for line in man.split('\n'):
            begin = re.match(r'\.S[sh] .*?\b([a-z]+)\b', line)
            if begin:
                group = begin.group(1)
            for key in re.findall(r'^\.It (?:Cm|Va|Ic|Li|Sy) ([a-z_.]+)', line):
                self.groups.setdefault(key.split('.')[0] if '.' in key else group, set()).add(
                    key.split('.')[-1]
                )
        headers = [
            path for path in glob.glob('**/*.h', recursive=True) if not path.startswith('build')
        ]
        self.calls = set(re.findall(r'\b(gf_[a-z0-9_]+)', '\n'.join(map(text_of, headers))))
        self.tests = {
            os.path.basename(path).split('.')[0] for path in glob.glob('firmware-tests/*/*')
        }


def codes(text):
    """(line number, code) of a page."""
    fenced = False
    for number, line in enumerate(text.split('\n'), 1):
        if line.lstrip().startswith('```'):
            fenced = not fenced
        elif fenced:
            yield number, line, True
        else:
            for code in CODE.findall(line):
                yield number, code, False


def missing_of(code, fenced, folder, tree):
    for path in PATH.findall(code):
        path = path.rstrip('.')
        places = [os.path.join(place, path) for place in ('', folder, 'firmware-tests')]
        if 'NAME' not in path and not any(glob.glob(place + '*') for place in places):
            yield path
    for target in TARGET.findall(code):
        if target not in tree.targets:
            yield f'make {target}'
    tools = TOOL.findall(code)
    if tools:
        known = set().union(*(tree.options.get(tool, set()) for tool in tools)) | {
            'help',
            'version',
        }
        for option in OPTION.findall(code.split('#')[0]):
            if option not in known and not re.search(r'(srun|mpirun|sbatch|torchrun|python)', code):
                yield f'{tools[-1]} --{option}'
    for call in CALL.findall(code):
        if call not in tree.calls and not fenced:
            yield f'{call}()'
    setting = SETTING.match(code)
    if (
        setting
        and setting.group(2) not in ENDINGS
        and setting.group(1) in tree.groups
        and not fenced
    ):
        if setting.group(2) not in tree.groups[setting.group(1)]:
            yield f'{setting.group(1)}.{setting.group(2)}'
    if TEST.match(code) and code.split('.')[0] not in tree.tests and not fenced:
        yield code


def main():
    tree, code = Tree(), 0
    for page in sys.argv[1:]:
        for number, text, fenced in codes(text_of(page)):
            for name in missing_of(text, fenced, os.path.dirname(page), tree):
                print(f'{page}:{number}: there is no {name}')
                code = 1
    return code


if __name__ == '__main__':
    sys.exit(main())
