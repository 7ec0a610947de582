"""Writes src/models/files/config-names.ts: every name by which a program of transformers reads a model's config.

    python scripts/config-names.py      (needs transformers; it reads its source and runs none of it)

These are the fields that config classes declare, those they take under another name, and those that programs ask for
by getattr() or as a key.
"""
import ast, glob, importlib.util, os, re

ROOT = os.path.dirname(importlib.util.find_spec('transformers').origin)
OUT = os.path.join(os.path.dirname(__file__), '..', 'src', 'models', 'files', 'config-names.ts')
VERSION = re.search(r'__version__ = "(\d+\.\d+)', open(os.path.join(ROOT, '__init__.py')).read()).group(1)
NAME = re.compile(r'^[a-zA-Z_]\w*$')
ASKED = re.compile(
    r'config\.([a-zA-Z_]\w*)(?!\w*\()|(?:getattr|hasattr)\(\s*(?:self\.)?\w*config\w*,\s*["\'](\w+)["\']')


def declared(path):
    """Fields of classes, arguments of functions, keys and texts that are asked for, in a file of configs."""
    for node in ast.walk(ast.parse(open(path).read())):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Dict):
            yield from (k.value for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str))
        elif isinstance(node, ast.Call):
            yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield str(node.slice.value)


def asked(path):
    for own, other in ASKED.findall(open(path).read()):
        yield own or other


def main():
    names = set()
    for path in glob.glob(os.path.join(ROOT, 'models', '*', 'configuration_*.py')):
        names |= set(declared(path))
    models = os.path.join(ROOT, 'models', '*', 'modeling_*.py')
    for path in [*glob.glob(models), *glob.glob(os.path.join(ROOT, '*.py'))]:
        names |= set(asked(path))
    for path in ('modeling_rope_utils.py', 'configuration_utils.py'):
        names |= set(declared(os.path.join(ROOT, path)))
    names = sorted(n for n in names if NAME.match(n) and not n.startswith('__'))
    lines = ['']
    for name in names:
        if len(lines[-1]) + len(name) > 116:
            lines.append('')
        lines[-1] += f'{" " if lines[-1] else ""}{name}'
    text = '\n  '.join(lines)
    open(OUT, 'w').write(f'''// Written by scripts/config-names.py: the names by which programs of transformers read configs.
/** The version of transformers whose names these are. */
export const NAMES_VERSION = '{VERSION}';
/** Every name that a config may be asked for there, by any family. */
export const CONFIG_NAMES: ReadonlySet<string> = new Set(
  `{text}`.split(/\\s+/),
);
''')
    print(len(names), 'names of transformers', VERSION)


main()
