"""Writes docs/onnx-support.md from what mlcc does, so that it cannot say anything else.

Operators, their versions and the element types that they may have are what ONNX's schemas and, for
com.microsoft, ONNX Runtime's say. `mlcc --list-ops` says from which version on an operator has an
import function. For its types mlcc is asked: a model of the one operator, from ONNX's backend tests
or from onnx_examples.py, is given each element type in turn and compiled for each target. What
compiles is supported; whether it computes what it should is the matter of ONNX's tests, of which
none fails on any target (`make check` sees to that).

Limits are the messages by which the import function, and the functions of its file that it calls,
refuse forms of an operator.
"""

import argparse
import collections
import concurrent.futures
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

import onnx
import onnx.parser
import onnxruntime.capi.onnxruntime_pybind11_state as ort
from onnx import TensorProto, defs, helper, numpy_helper

from onnx_examples import EXAMPLES, LONGER

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "onnx-support.md"
TARGETS = {"c": "x.c", "cuda": "x.cu", "vulkan": "x.comp"}
OPTIONS = ["--image-decoder=magickwand"]  # what operators need besides
CANDIDATES = 10  # models of an operator that are tried with a type before it counts as refused

# ONNX's word for an element type, the code, and how the page writes it.
TYPES = {
    "bool": (TensorProto.BOOL, "bool"),
    "int2": (TensorProto.INT2, "i2"),
    "int4": (TensorProto.INT4, "i4"),
    "int8": (TensorProto.INT8, "i8"),
    "int16": (TensorProto.INT16, "i16"),
    "int32": (TensorProto.INT32, "i32"),
    "int64": (TensorProto.INT64, "i64"),
    "uint2": (TensorProto.UINT2, "u2"),
    "uint4": (TensorProto.UINT4, "u4"),
    "uint8": (TensorProto.UINT8, "u8"),
    "uint16": (TensorProto.UINT16, "u16"),
    "uint32": (TensorProto.UINT32, "u32"),
    "uint64": (TensorProto.UINT64, "u64"),
    "float4e2m1": (TensorProto.FLOAT4E2M1, "f4"),
    "float8e4m3fn": (TensorProto.FLOAT8E4M3FN, "f8e4m3fn"),
    "float8e4m3fnuz": (TensorProto.FLOAT8E4M3FNUZ, "f8e4m3fnuz"),
    "float8e5m2": (TensorProto.FLOAT8E5M2, "f8e5m2"),
    "float8e5m2fnuz": (TensorProto.FLOAT8E5M2FNUZ, "f8e5m2fnuz"),
    "float8e8m0": (TensorProto.FLOAT8E8M0, "f8e8m0"),
    "float16": (TensorProto.FLOAT16, "f16"),
    "bfloat16": (TensorProto.BFLOAT16, "bf16"),
    "float": (TensorProto.FLOAT, "f32"),
    "double": (TensorProto.DOUBLE, "f64"),
    "complex64": (TensorProto.COMPLEX64, "c64"),
    "complex128": (TensorProto.COMPLEX128, "c128"),
    "string": (TensorProto.STRING, "string"),
}
BY_CODE = {code: word for word, (code, _) in TYPES.items()}

# ---- schemas -------------------------------------------------------------------------------------

Param = collections.namedtuple("Param", "types variadic same")


class Operator:
    """An operator of a domain: its newest schema, and all versions that there are."""

    def __init__(self, domain, schema):
        self.domain, self.name, self.schema = domain, schema.name, schema
        self.versions = set()
        self.since = None  # first version that mlcc serves
        self.varies = False
        self.tests = self.passed = 0
        self.models, self.taken = [], []
        self.found = {}  # (constraint, type) -> targets that take it

    def params(self, outputs):
        result = []
        for p in self.schema.outputs if outputs else self.schema.inputs:
            types = p.type_str if hasattr(p, "type_str") else p.typeStr
            same = p.is_homogeneous if hasattr(p, "is_homogeneous") else p.isHomogeneous
            result.append(Param(types, str(p.option).endswith("Variadic"), same))
        return result

    def constraints(self):
        """What may be of several element types: name -> the types, as ONNX writes them."""
        result = {}
        for t in self.schema.type_constraints:
            known = [x for x in t.allowed_type_strs if x.startswith(("tensor(", "map("))]
            allowed = sorted(known, key=type_order)
            used = [p.types for p in self.params(False) + self.params(True)]
            if t.type_param_str in used and allowed:
                result[t.type_param_str] = allowed
        return result


def word_of(text):
    """The element type of ONNX's `tensor(float)`; of a map the words of both its types."""
    if text.startswith("map("):
        key, value = text.removeprefix("map(").removesuffix(")").split(",", 1)
        return f"{key} {word_of(value.strip())}"
    return text.removeprefix("tensor(").removesuffix(")")


def type_order(text):
    return [list(TYPES).index(word) for word in word_of(text).split()]


def short(text):
    return "→".join(TYPES[word][1] for word in word_of(text).split())


def all_operators():
    operators = {}
    for schema in defs.get_all_schemas():
        if schema.domain in DOMAINS:
            operators[schema.domain, schema.name] = Operator(schema.domain, schema)
    for schema in ort.get_all_operator_schema():
        if schema.domain == "com.microsoft":
            key = schema.domain, schema.name
            if key not in operators or schema.since_version > operators[key].schema.since_version:
                operators[key] = Operator(schema.domain, schema)
    microsoft = [s for s in ort.get_all_operator_schema() if s.domain == "com.microsoft"]
    for schema in defs.get_all_schemas_with_history() + microsoft:
        key = schema.domain, schema.name
        newest = key in operators and operators[key].schema.since_version
        if newest and schema.since_version <= newest:
            operators[key].versions.add(schema.since_version)
    return operators


# ---- models --------------------------------------------------------------------------------------


def map_type(word):
    key, value = (TYPES[part][0] for part in word.split())
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))


def value_info(name, word, shape):
    if " " in word:
        return helper.make_value_info(name, map_type(word))
    return helper.make_tensor_value_info(name, TYPES[word][0], shape)


def example_model(domain, op, inputs, outputs, attributes):
    names = [f"i{k}" if what else "" for k, what in enumerate(inputs)]
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    given, constants = [], []
    for name, what in zip(names, inputs):
        if isinstance(what, TensorProto):
            constants.append(TensorProto())
            constants[-1].CopyFrom(what)
            constants[-1].name = name
        elif what:
            given.append(value_info(name, *what))
    graph = helper.make_graph(
        [node],
        "example",
        given,
        [helper.make_empty_tensor_value_info(name) for name in results],
        constants,
    )
    opsets = [helper.make_opsetid("", 21)]
    if domain:
        opsets.append(helper.make_opsetid(domain, {"ai.onnx.ml": 4}.get(domain, 1)))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def longer_model(name, word):
    ends = f"g ({word}[2] x) => ({word}[N] y)"
    body = LONGER[name][1].replace("TYPE", word)
    head = '<ir_version: 10, opset_import: ["": 21]>'
    return onnx.parser.parse_model(f"{head} {ends} {{ {body} }}")


def is_imported(mlcc, path):
    command = [mlcc, "inspect", path, "--dim", "*=2", *OPTIONS]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def collect_models(operators, suite, mlcc, jobs):
    """Takes the models of ONNX's tests, and counts those that mlcc takes. Returns how many there
    are."""
    kinds = ("node", "simple", "pytorch-converted", "pytorch-operator")  # as tests/onnx has them
    paths = [path for kind in kinds for path in sorted(suite.glob(f"{kind}/*/model.onnx"))]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        imported = list(pool.map(lambda path: is_imported(mlcc, path), paths))
    for path, passed in zip(paths, imported):
        model = onnx.load(path)
        nodes = model.graph.node
        for key in {("" if x.domain == "ai.onnx" else x.domain, x.op_type) for x in nodes}:
            if key in operators:
                operators[key].tests += 1
                operators[key].passed += passed
                # one node, or what stands with others in ONNX's tests
                if len(nodes) == 1 or "Sequence" in key[1] or key[1] == "Gradient":
                    operators[key].models.append(model)
    for name, (constraint, _) in LONGER.items():
        if ("", name) in operators:
            operators["", name].models.append(longer_model(name, "float"))
    for row in EXAMPLES:
        if (row[0], row[1]) in operators:
            operators[row[0], row[1]].models.append(example_model(*row))
    return len(imported)


def set_type(value, word):
    """Gives a tensor this element type, or a map these types; false if it is none."""
    if " " in word:
        value.type.CopyFrom(map_type(word))
        return True
    if value.type.WhichOneof("value") not in (None, "tensor_type"):
        return False
    value.type.tensor_type.elem_type = TYPES[word][0]
    return True


def set_constant(tensor, word):
    code = TYPES[word][0]
    if word == "string" or tensor.data_type == TensorProto.STRING:
        return tensor.data_type == code
    array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(code))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return tensor.data_type == code


# Attributes that say the type of an output.
SAYS_TYPE = {"to", "dtype", "output_dtype", "output_datatype", "stash_type"}


def param_of(params, k):
    """The parameter that actual input or output k belongs to."""
    return params[min(k, len(params) - 1)] if params else None


def retyped(operator, model, constraint, word):
    """The model with all that `constraint` types of this type; None if it has nothing of it.
    Without a constraint: the model as it is."""
    if constraint is None:
        return model
    if model.graph.name == "g" and LONGER.get(operator.name, [""])[0] == constraint:
        try:
            return longer_model(operator.name, word)
        except onnx.parser.ParseError:
            return None
    new = onnx.ModelProto()
    new.CopyFrom(model)
    node = next(x for x in new.graph.node if x.op_type == operator.name)
    found = False
    for outputs in (False, True):
        params = operator.params(outputs)
        values = {v.name: v for v in (new.graph.output if outputs else new.graph.input)}
        constants = {t.name: t for t in new.graph.initializer}
        for k, name in enumerate(node.output if outputs else node.input):
            param = param_of(params, k)
            if not name or not param or param.types != constraint:
                continue
            if name in values and not set_type(values[name], word):
                return None
            if name in constants and not set_constant(constants[name], word):
                return None
            if name not in values and name not in constants:
                return None
            found = True
    # types that an attribute says
    at_input = any(p.types == constraint for p in operator.params(False))
    for attribute in node.attribute:
        if at_input:
            continue
        if attribute.name in SAYS_TYPE:
            attribute.i = TYPES[word][0]
        elif attribute.name == "value" and attribute.HasField("t"):
            if not set_constant(attribute.t, word):
                return None
    given = {attribute.name for attribute in node.attribute}
    for name in SAYS_TYPE & set(operator.schema.attributes) - given:
        if not at_input and word != "float":
            node.attribute.append(helper.make_attribute(name, TYPES[word][0]))
    return new if found else None


def type_in(operator, model, constraint):
    """The element type that the constraint stands for in the model; None if nothing says it."""
    node = next(x for x in model.graph.node if x.op_type == operator.name)
    types = {t.name: t.data_type for t in model.graph.initializer}
    for value in [*model.graph.input, *model.graph.output]:
        if not value.type.HasField("map_type"):
            types.setdefault(value.name, value.type.tensor_type.elem_type)
    for outputs in (False, True):
        params = operator.params(outputs)
        for k, name in enumerate(node.output if outputs else node.input):
            param = param_of(params, k)
            if param and param.types == constraint and types.get(name):
                return BY_CODE.get(types[name])
    return None


def retyped_together(operator, model, constraint, word):
    """The same with all constraints of the type that this one has in the model, where they may have
    the other type: tensors that must be of one type may have constraints of their own."""
    before = type_in(operator, model, constraint)
    changed = retyped(operator, model, constraint, word)
    for other, types in operator.constraints().items():
        together = before and changed and other != constraint
        if together and f"tensor({word})" in types and type_in(operator, model, other) == before:
            changed = retyped(operator, changed, other, word) or changed
    return changed


# ---- asking mlcc ---------------------------------------------------------------------------------


def compiles(mlcc, model, target):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.onnx"
        path.write_bytes(model.SerializeToString())
        command = [mlcc, path, "-t", target, "-o", pathlib.Path(folder) / TARGETS[target]]
        command += ["--dim", "*=2", "--string-bytes", "8", *OPTIONS]
        try:
            done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            return 6, "more than 60 s"
        return done.returncode, done.stderr.decode(errors="replace").strip()


NOT_SUPPORTED = 4  # mlcc's exit status


def targets_for(mlcc, operator, constraint, text, notes):
    """The targets that take the operator with this type; None if no model with it is right."""
    word = word_of(text) if text else ""
    models = sorted(
        operator.taken if constraint else operator.models,
        key=lambda m: (type_in(operator, m, constraint) != word, m.ByteSize()),
    )
    done, refused, tried = set(), False, 0
    for model in models:
        ways = [retyped(operator, model, constraint, word)]
        if constraint:
            ways.append(retyped_together(operator, model, constraint, word))
        if ways[0] is None or tried == CANDIDATES:
            continue
        tried += 1
        for changed in ways:
            for target in TARGETS:
                if target in done:
                    continue
                status, message = compiles(mlcc, changed, target)
                if status == 0:
                    done.add(target)
                    continue
                refused |= status == NOT_SUPPORTED
                notes.append(f"{operator.name} {constraint} {word} {target}: {message}")
                if "error[E3003]" not in message:
                    break  # it is refused before there are targets
            if len(done) == len(TARGETS):
                return done
    return done if done or refused else None


def find_taken(mlcc, operator):
    """Those of its models that mlcc takes as they stand: a refusal of others says nothing."""
    operator.models.sort(key=lambda model: model.ByteSize())
    operator.taken = [m for m in operator.models if compiles(mlcc, m, "c")[0] == 0]


def probe(mlcc, operators, jobs):
    notes = []
    work = []
    supported = [o for o in operators.values() if o.since is not None]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda o: find_taken(mlcc, o), supported))
    for operator in supported:
        work.append((operator, None, ""))
        for constraint, types in operator.constraints().items():
            work += [(operator, constraint, text) for text in types]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda w: targets_for(mlcc, *w, notes), work)
        for (operator, constraint, text), targets in zip(work, results):
            operator.found[constraint, text] = targets
    return notes


# ---- limits --------------------------------------------------------------------------------------


def function_bodies(path):
    """Name -> body of each function of a C file."""
    text = path.read_text()
    return {
        m[1]: m[2]
        for m in re.finditer(r"^\w[^;{}()]*?(\w+)\([^;{}]*\) \{\n(.*?)^\}", text, re.M | re.S)
    }


def refusals(body):
    """The messages of unsupported() in a body, without what printf puts in."""
    for m in re.finditer(r'\bunsupported\([\w>.-]+,\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', body):
        message = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', m[1]))
        yield re.sub(r"%(?:ll|z)?[a-z]", "…", message)


def all_limits():
    """(domain, operator) -> messages, from the functions that ops.def names."""
    folder = ROOT / "compiler" / "onnx"
    bodies = {path: function_bodies(path) for path in sorted(folder.glob("*.c"))}
    home = {name: path for path, functions in bodies.items() for name in functions}
    limits = collections.defaultdict(list)
    table = (folder / "ops.def").read_text()
    row = r'^(?:OP|DYN|TEXT|DYN_TEXT)\("([^"]*)", "(\w+)", \d+, (\w+)\)'
    rows = re.findall(row, table, re.M)
    for domain, name, function in rows:
        # what Loop and Scan share is in a file of its own
        functions = {**bodies[folder / "repeat.c"], **bodies[home[function]]}
        seen, waiting = set(), [function]
        while waiting:
            at = waiting.pop(0)
            if at in seen:
                continue
            seen.add(at)
            for message in refusals(functions[at]):
                if message not in limits[domain, name]:
                    limits[domain, name].append(message)
            called = re.findall(r"\b(\w+)\b", functions[at])
            waiting += [f for f in dict.fromkeys(called) if f in functions and f not in seen]
    return limits


# ---- the page ------------------------------------------------------------------------------------


def join_types(types):
    return " ".join(short(t) for t in types)


COMPLEX = ("tensor(complex64)", "tensor(complex128)")


def types_cell(operator):
    """`T: all 4` for each constraint, or which, and what only some targets take."""
    parts = []
    for constraint, types in operator.constraints().items():
        found = {t: operator.found.get((constraint, t)) for t in types}
        types = [t for t in types if t not in COMPLEX or found[t]]
        known = [t for t in types if found[t] is not None]
        if not known:
            continue
        full = [t for t in known if len(found[t]) == len(TARGETS)]
        none = [t for t in known if not found[t]]
        some = [t for t in known if found[t] and len(found[t]) < len(TARGETS)]
        unknown = [t for t in types if found[t] is None]
        others = len(none) + len(some) + len(unknown)
        if len(full) > 4 and not others:
            text = f"all {len(types)}"
        elif len(full) > 4 and others <= 4:
            text = f"{len(full)} of {len(types)}"
        else:
            text = join_types(full)
        if none:
            text += f", not {join_types(none)}"
        if unknown:
            text += f", unproven {join_types(unknown)}"
        for t in some:
            text += f", {short(t)} on {' and '.join(sorted(found[t]))} alone"
        parts.append(f"{constraint}: {text}".replace(": ,", ":"))
    return "<br>".join(parts)


def versions_cell(operator):
    served = sorted(v for v in operator.versions if v >= operator.since)
    first = min(operator.versions)
    if operator.since > first:
        return f"from {operator.since} (of {first} to {max(operator.versions)})"
    return f"{served[0]}" if len(served) == 1 else f"{served[0]} to {served[-1]}"


SHARED = 8  # a message of so many operators is a note below the table


def refused_cell(operator, limits, notes):
    """The messages; those of many operators as the numbers of notes."""
    parts = []
    for message in limits.get((operator.domain, operator.name), []):
        count = sum(message in messages for messages in limits.values())
        if count >= SHARED:
            number = notes.setdefault(message, len(notes) + 1)
            parts.append(f"({number})")
        else:
            parts.append(message)
    return "; ".join(parts).replace("|", "\\|")


def domain_table(domain, operators, limits, notes):
    rows = sorted((o for o in operators.values() if o.domain == domain), key=lambda o: o.name)
    supported = [o for o in rows if o.since is not None]
    out = [
        f"## {domain or 'ai.onnx'}",
        "",
        f"{len(supported)} of {len(rows)} operators.",
        "",
    ]
    if supported:
        out += [
            "| operator | versions | element types | dims | refused | ONNX tests |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
    for o in supported:
        refused = refused_cell(o, limits, notes)
        tests = f"{o.passed}" if o.passed == o.tests else f"{o.passed} of {o.tests}"
        dims = "vary" if o.varies else "fixed"
        tests = tests if o.tests else ""
        cells = [o.name, versions_cell(o), types_cell(o), dims, refused, tests]
        out.append("| " + " | ".join(cells) + " |")
    missing = [
        o.name + (" (deprecated)" if o.schema.deprecated else "") for o in rows if o.since is None
    ]
    if missing:
        out += ["", "Not supported:", "", ", ".join(missing) + "."]
    return out + [""]


HEAD = """# ONNX operators that mlcc supports

Made by `scripts/onnx-support`, which asks mlcc; `make check` compares. Schemas are those of onnx
{onnx} and, for com.microsoft, of ONNX Runtime {ort}.

- **versions**: of the operator, as ONNX counts them, that mlcc has an import function for; later
  opsets count as the last one.
- **element types**: for each type variable of the newest schema, of the types that it allows, those
  with which a model of this one operator compiles for c, cuda and vulkan; `not`: those that mlcc
  says it does not support; `unproven`: mlcc takes no model with this type that was tried, and calls
  those wrong. A variable without a tensor that is an end of a model is left out. So are complex
  numbers: no operator takes them.
- **dims**: whether dimensions may vary from run to run (`--dim NAME=LOW..HIGH`).
- **refused**: forms that end with E3002, in mlcc's words; … stands for names and numbers, numbers
  in brackets for the notes at the end. Beside these, what decides a shape must be constant or
  declared by the model (E3004), and a tensor has fewer than 2^31 elements in at most 8 dimensions.
- **ONNX tests**: how many of ONNX's backend tests with this operator mlcc takes without being told
  more than the model says; those pass. None of the {tests} tests fails on any target; how many pass
  with the lengths of sequences (`--items`) and values that decide shapes (`--fix`) given, say
  tests/onnx/expected-*.txt. Operators without such tests are tested by tests/unit and
  scripts/fuzz-graphs.

Short names: i8 to i64, u8 to u64, f16, bf16, f32, f64; i2, i4, u2, u4 are integers of so many bits,
f4 is float4e2m1, f8 and what follows one of the 8-bit floats. Strings exist on every target (see
README), and so do maps, i64→f32 from one type to the other; sequences and optionals have lengths that
are known when compiling, and are not listed.
"""
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")


def page(operators, limits, tests):
    notes = {}
    versions = {"onnx": onnx.__version__, "ort": ort.get_version_string()}
    out = [HEAD.format(tests=tests, **versions)]
    for domain in DOMAINS:
        if any(o.domain == domain for o in operators.values()):
            out += domain_table(domain, operators, limits, notes)
    if notes:
        out += ["## Notes", ""]
        out += [f"- ({number}) {message}" for message, number in notes.items()] + [""]
    return "\n".join(out)


def main():
    about = __doc__.split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="scripts/onnx-support", description=about)
    parser.add_argument("--check", action="store_true", help="compare only; 1 if the page differs")
    parser.add_argument("--suite", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--filter", default="", help="print only operators with this in the name")
    parser.add_argument("--notes", type=pathlib.Path, help="write each refusal to this file")
    options = parser.parse_args()
    mlcc = options.build / "mlcc"
    operators = {k: o for k, o in all_operators().items() if options.filter in o.name}
    listed = subprocess.run([mlcc, "--list-ops"], capture_output=True, check=True, text=True).stdout
    for line in listed.splitlines():
        domain, name, since, *more = line.split()
        operator = operators.get(("" if domain == "ai.onnx" else domain, name))
        if operator:
            operator.since = min(int(since), operator.since or int(since))
            operator.since = max(operator.since, min(operator.versions))
            operator.varies |= "varying" in more
    tests = collect_models(operators, options.suite, mlcc, options.jobs)
    notes = probe(mlcc, operators, options.jobs)
    if options.notes:
        options.notes.write_text("\n".join(sorted(notes)) + "\n")
    untried = sorted(
        o.name
        for o in operators.values()
        if o.since and len(o.found[None, ""] or "") < len(TARGETS)
    )
    text = page(operators, all_limits(), tests)
    if options.filter:
        print(text)
        return 0
    if untried:
        print(f"onnx-support: no example that compiles of: {' '.join(untried)}", file=sys.stderr)
        return 1
    if not options.check:
        PAGE.write_text(text)
        return 0
    old = PAGE.read_text() if PAGE.exists() else ""
    names = [str(PAGE.relative_to(ROOT)), "as mlcc is"]
    lines = [part.splitlines() for part in (old, text)]
    for line in difflib.unified_diff(*lines, *names, lineterm="", n=0):
        print(line)
    return int(old != text)


if __name__ == "__main__":
    sys.exit(main())
