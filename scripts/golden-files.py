"""Writes test/golden/files: tensor files made by PyTorch, NumPy, safetensors and gguf-py, and what they hold.

    python scripts/golden-files.py      (needs torch, numpy, safetensors, gguf)

The tests read these files and need no Python. expected.json names the programs' versions and gives every tensor as
dtype, shape and the MD5 of its row-major little-endian bytes.
"""
import collections, hashlib, json, os
import gguf, numpy as np, safetensors, torch
from gguf import quants
from safetensors.torch import save_file

OUT = os.path.join(os.path.dirname(__file__), '..', 'test', 'golden', 'files')
os.makedirs(OUT, exist_ok=True)
place = lambda name: os.path.join(OUT, name)
torch.manual_seed(12)
rng = np.random.default_rng(12)
expected = {'source': f'torch {torch.__version__}, numpy {np.__version__}, safetensors {safetensors.__version__}, '
                      f'gguf-py {__import__("importlib.metadata").metadata.version("gguf")}', 'files': {}}

NAMES = {torch.float32: 'f32', torch.float64: 'f64', torch.float16: 'f16', torch.bfloat16: 'bf16', torch.uint8: 'u8',
         torch.int8: 'i8', torch.int16: 'i16', torch.int32: 'i32', torch.int64: 'i64', torch.bool: 'bool'}
NUMPY = {'float32': 'f32', 'float64': 'f64', 'float16': 'f16', 'uint8': 'u8', 'int8': 'i8', 'int16': 'i16',
         'int32': 'i32', 'int64': 'i64', 'uint32': 'u32', 'bool': 'bool', 'uint16': 'u16'}


def md5(b):
    return hashlib.md5(b).hexdigest()[:16]


def told(t):
    if isinstance(t, torch.Tensor):
        t = t.detach().contiguous()
        return [NAMES[t.dtype], list(t.shape), md5(t.reshape(-1).view(torch.uint8).numpy().tobytes())]
    t = np.ascontiguousarray(t.astype(t.dtype.newbyteorder('<'))).reshape(t.shape)
    return [NUMPY[t.dtype.name], list(t.shape), md5(t.tobytes())]


def flat(value, name=''):
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return {name: told(value)}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else []
    out = {}
    for k, v in items:
        out.update(flat(v, f'{name}.{k}' if name else str(k)))
    return out


def note(name, value):
    expected['files'][name] = flat(value)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.GELU(), torch.nn.Linear(5, 2, bias=False))
        self.register_buffer('steps', torch.arange(3))


net = Net()
base = torch.randn(6, 8)
views = {'whole': base, 'transposed': base.t(), 'column': base[:, 3], 'step': base[::2, 1::3], 'tail': base[4:],
         'broadcast': base[:1].expand(4, 8), 'empty': base[:0], 'scalar': torch.tensor(2.5), 'channels':
         torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)}
dtypes = {str(d).split('.')[1]: (torch.randint(0, 2, (3, 4)).to(d) if d == torch.bool else
          (torch.randn(3, 4) * 50).to(d) if d.is_floating_point else torch.randint(-100 if d != torch.uint8 else 0, 100, (3, 4)).to(d))
          for d in NAMES}
edges = {'f32': torch.tensor([0.0, -0.0, float('inf'), -float('inf'), float('nan'), 1e-45, 3.4028235e38]),
         'f16': torch.tensor([0.0, -0.0, float('inf'), float('nan'), 6e-8, 65504.0], dtype=torch.float16)}
nested = collections.OrderedDict(model=net.state_dict(), optimizer={'state': {0: {'exp_avg': torch.randn(2, 3), 'step': torch.tensor(7.0)}},
         'param_groups': [{'lr': 1e-3, 'betas': (0.9, 0.999), 'params': [0]}]}, epoch=3, name='run', layers=[torch.ones(2), {'w': torch.zeros(1, 2)}],
         shared=(base, base), parameter=torch.nn.Parameter(torch.randn(3)))

for name, value in {'state': net.state_dict(), 'views': views, 'dtypes': dtypes, 'edges': edges, 'nested': nested,
                    'tensor': torch.arange(6).reshape(2, 3)}.items():
    for kind, zipped in (('zip', True), ('legacy', False)):
        file = f'{name}-{kind}.pt'
        torch.save(value, place(file), _use_new_zipfile_serialization=zipped)
        note(file, value)
torch.save(views, place('views-protocol5.pt'), pickle_protocol=5)
note('views-protocol5.pt', views)

arrays = {'c': rng.standard_normal((3, 4)), 'f': np.asfortranarray(rng.standard_normal((3, 4, 2)).astype(np.float32)),
          'big': rng.standard_normal((2, 3)).astype('>f4'), 'bigf': np.asfortranarray(np.arange(24, dtype='>i4').reshape(2, 3, 4)),
          'half': rng.standard_normal(5).astype(np.float16), 'yes': np.array([[True, False], [False, True]]),
          'u32': np.array([0, 1, 2**32 - 1], np.uint32), 'i64': np.array([-2**63, 2**63 - 1]), 'i8': np.arange(-4, 4, dtype=np.int8),
          'u16': np.array([1, 65535], np.uint16), 'zero': np.zeros((0, 3)), 'scalar': np.array(3.5)}
for name, a in arrays.items():
    np.save(place(f'{name}.npy'), a)
    note(f'{name}.npy', {'': a})
np.savez(place('stored.npz'), **arrays)
np.savez_compressed(place('deflated.npz'), **arrays)
for n in ('stored.npz', 'deflated.npz'):
    note(n, arrays)
save_file({k: v for k, v in dtypes.items()}, place('dtypes.safetensors'), metadata={'format': 'pt', 'note': 'größe'})
note('dtypes.safetensors', dtypes)

# gguf: one model in two formats, a vocabulary without tensors, every kind of metadata, quantized blocks.
weights = {'token_embd.weight': rng.standard_normal((16, 64)).astype(np.float32), 'blk.0.ffn_down.weight':
           rng.standard_normal((64, 96)).astype(np.float32), 'output_norm.weight': np.ones(64, np.float32)}


def write(name, tensors, metadata):
    w = gguf.GGUFWriter(place(name), 'llama')
    metadata(w)
    for k, v in tensors.items():
        w.add_tensor(k, v)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def everything(w):
    w.add_block_count(2)
    w.add_uint8('t.u8', 255), w.add_int8('t.i8', -128), w.add_uint16('t.u16', 65535), w.add_int16('t.i16', -32768)
    w.add_uint32('t.u32', 2**32 - 1), w.add_int32('t.i32', -2**31), w.add_float32('t.f32', 0.5), w.add_float64('t.f64', 1 / 3)
    w.add_uint64('t.u64', 2**64 - 1), w.add_int64('t.i64', -2**63), w.add_bool('t.bool', True), w.add_string('t.text', 'größe 😀')
    w.add_array('t.ints', [1, -2, 3]), w.add_array('t.texts', ['a', '', 'ü']), w.add_array('t.floats', [0.5, -1.5]), w.add_array('t.bools', [True, False])


write('model.gguf', weights, everything)
save_file({k: torch.from_numpy(v) for k, v in weights.items()}, place('model.safetensors'))
for n in ('model.gguf', 'model.safetensors'):
    note(n, weights)
write('vocabulary.gguf', {}, lambda w: (w.add_tokenizer_model('llama'), w.add_token_list([f'piece {i}' for i in range(500)]),
                                        w.add_token_scores([-float(i) for i in range(500)]), w.add_token_types([1] * 500)))
note('vocabulary.gguf', {})

# Rows with all signs, a constant row, zeros, one outlier, ties of the largest magnitude, tiny and huge values.
rows = rng.standard_normal((12, 256)).astype(np.float32)
rows[1], rows[2] = 0.75, 0
rows[3, 100] = 1e4
rows[4, 5], rows[4, 9] = 3.5, -3.5
rows[5] *= 1e-6
rows[6] *= 1e3
rows[7] = np.arange(256) / 16 - 8
inputs = {'rows': rows}
bytes_of = {}
for name in ('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'BF16'):
    bytes_of[f'quantized.{name}'] = quants.quantize(rows, getattr(gguf.GGMLQuantizationType, name)).view(np.uint8)
for name in ('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'IQ4_NL', 'IQ4_XS', 'MXFP4'):
    kind = getattr(gguf.GGMLQuantizationType, name)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (4, 256 // block * size), dtype=np.uint8)
    cells = raw.reshape(-1, size)  # scales as small halves, so that every block is finite; the places are ggml's
    at = {'Q2_K': (80, 82), 'Q3_K': (108,), 'Q4_K': (0, 2), 'Q5_K': (0, 2), 'Q6_K': (208,), 'Q4_1': (0, 2), 'Q5_1': (0, 2)}.get(name, (0,))
    if name == 'MXFP4':
        cells[:, 0] = rng.integers(100, 140, len(cells))
    else:
        for i in at:
            cells[:, i:i + 2] = (rng.standard_normal((len(cells), 1)) / 8).astype(np.float16).view(np.uint8)
    bytes_of[f'blocks.{name}'] = raw
    inputs[f'values.{name}'] = quants.dequantize(raw, kind).astype(np.float32)
save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in {**inputs, **bytes_of}.items()}, place('quants.safetensors'))
json.dump(expected, open(place('expected.json'), 'w'), indent=1, ensure_ascii=False)
print(expected['source'], len(expected['files']), 'files')
