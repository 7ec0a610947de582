"""Writes test/golden/onnx.json.br and onnx.safetensors.br: the node tests of the onnx package (Apache-2.0), for test/onnx.test.ts.

    python scripts/golden-onnx.py        (needs onnx, torch, safetensors; Node packs them)

A case is { name, nodes: [{ op, domain, inputs, outputs, attributes }], opset, constants, inputs, outputs } with tensors as { t: name, d: dtype }.
Cases that no engine of numbers can run are left out and counted by reason.
"""
import collections
import numpy as np, onnx, torch
from onnx.backend.test.case.node import collect_testcases
import golden_cases
from golden_cases import cases, known, tensors

DTYPES = {'float64': 'f64', 'float32': 'f32', 'float16': 'f16', 'bfloat16': 'bf16', 'int64': 'i64', 'int32': 'i32', 'int16': 'i16',
          'uint8': 'u8', 'uint32': 'u32', 'bool': 'bool', 'float8_e4m3fn': 'f8e4m3', 'int8': 'i8', 'float8_e5m2': 'f8e5m2'}
STORED = {**golden_cases.NAMES, 'u32': torch.int32, 'bool': torch.uint8, 'i8': torch.int8, 'f8e5m2': torch.uint8}  # bits, where safetensors' writer has no such dtype
LARGEST = 100_000  # bytes of one case
left = collections.defaultdict(list)


class Left(Exception):
    pass


def tensor(a):
    if isinstance(a, onnx.TensorProto):
        a = onnx.numpy_helper.to_array(a)
    if not isinstance(a, np.ndarray):
        a = np.asarray(a)
    name = str(a.dtype)
    if name not in DTYPES:
        raise Left('strings' if a.dtype.kind in 'OSU' else f'dtype {name}')
    d = DTYPES[name]
    key = (name, a.shape, a.tobytes())
    if key not in known:
        known[key] = f't{len(known)}'
        flat = torch.frombuffer(bytearray(a.tobytes()), dtype=STORED[d]) if a.size else torch.empty(0, dtype=STORED[d])
        tensors[known[key]] = flat.reshape(a.shape)
    return {'t': known[key], 'd': d}


def attribute(a):
    kind = onnx.AttributeProto.AttributeType.Name(a.type)
    if kind in ('GRAPH', 'GRAPHS'):
        raise Left('control flow with graphs inside')
    if kind == 'TENSOR':
        return {'tensor': tensor(onnx.numpy_helper.to_array(a.t))}
    value = onnx.helper.get_attribute_value(a)
    if kind == 'STRING':
        return value.decode()
    if kind == 'STRINGS':
        return [v.decode() for v in value]
    if kind in ('FLOAT', 'FLOATS'):
        number = lambda v: float(np.float32(v)) if np.isfinite(v) else {'$number': 'NaN' if v != v else 'Infinity' if v > 0 else '-Infinity'}
        return number(value) if kind == 'FLOAT' else [number(v) for v in value]
    return list(value) if kind == 'INTS' else value


def case(c):
    m = c.model
    if m.functions:
        raise Left('functions of the model')
    for v in [*m.graph.input, *m.graph.output]:
        kind = v.type.WhichOneof('value')
        if kind != 'tensor_type':
            raise Left(f'{kind.split("_")[0]} values')
    nodes = [{'op': n.op_type, 'domain': n.domain, 'inputs': list(n.input), 'outputs': list(n.output),
              'attributes': {a.name: attribute(a) for a in n.attribute}} for n in m.graph.node]
    inputs, outputs = c.data_sets[0]
    if sum(getattr(a, 'nbytes', 0) for a in [*inputs, *outputs]) > LARGEST:
        raise Left('more than 100 kB of numbers')
    named = lambda protos, arrays: {p.name: tensor(a) for p, a in zip(protos, arrays)}
    return {'name': c.name[5:], 'nodes': nodes, 'opset': max([o.version for o in m.opset_import if o.domain == ''] + [0]), 'rtol': c.rtol, 'atol': c.atol,
            'constants': {i.name: tensor(onnx.numpy_helper.to_array(i)) for i in m.graph.initializer},
            'inputs': named([p for p in m.graph.input], inputs), 'outputs': named(m.graph.output, outputs)}


total = 0
for c in collect_testcases(None):
    total += 1
    try:
        cases.append(case(c))
    except Left as why:
        left[str(why)].append(c.name[5:])
print(total, len(cases), {k: len(v) for k, v in left.items()})
golden_cases.write('onnx', f'onnx {onnx.__version__}; total {total}; ' + '; '.join(f'{k}: {len(v)}' for k, v in sorted(left.items())))
