"""Writes test/golden/nn.json.br: what PyTorch's layers, losses, optimizers and schedulers give, in double precision.

    python scripts/golden-nn.py        (needs torch; Node packs the file)

Tensors are { shape, data }, rounded to nine digits. Layers have their state by PyTorch's names, inputs, output, and the gradients
of the sum of output * weights for every input and parameter; losses the value and gradients of their sum; optimizers the parameters
after each of several steps with given gradients; schedules the learning rate of every step.
"""
import json, os, subprocess
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2026)
torch.set_default_dtype(torch.float64)
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'test', 'golden', 'nn.json')


def dump(t):
    t = t.detach()
    data = t.flatten().tolist()
    return {'shape': list(t.shape), 'data': [float(f'{v:.9g}') if t.is_floating_point() else v for v in data]}


def rand(*shape, lo=-1.0, hi=1.0):
    # Few digits, so that the file's inputs are what was computed with.
    return ((torch.rand(*shape) * (hi - lo) + lo) * 4096).round() / 4096


layers = []


def layer(name, args, module, inputs, run=None, train=False, calls=1, state_after=False, options=None):
    """`args` make our layer; `run` maps (module, inputs) to the output where it is not module(*inputs)."""
    for p in module.parameters():
        with torch.no_grad():
            p.copy_(rand(*p.shape))
    for n, b in module.named_buffers():
        if 'var' in n:
            b.copy_(rand(*b.shape, lo=0.5, hi=2))
        elif 'mean' in n:
            b.copy_(rand(*b.shape))
    module.train(train)
    state = {n: dump(t) for n, t in module.state_dict().items()}
    ins = [i.clone().requires_grad_(i.is_floating_point()) for i in inputs]
    run = run or (lambda m, *xs: m(*xs))
    for _ in range(calls):
        out = run(module, *ins)
    weights = rand(*out.shape)
    (out * weights).sum().backward()
    case = {'name': name, 'args': args, 'train': train, 'calls': calls, 'state': state, 'inputs': [dump(i) for i in inputs],
            'output': dump(out), 'weights': dump(weights),
            'inputGrads': [dump(i.grad) if i.grad is not None else None for i in ins],
            'grads': {n: dump(p.grad) for n, p in module.named_parameters() if p.grad is not None}}
    if options:
        case['options'] = options
    if state_after:
        case['after'] = {n: dump(b) for n, b in module.named_buffers()}
    layers.append(case)


layer('Linear', [3, 4], nn.Linear(3, 4), [rand(2, 5, 3)])
layer('Linear', [3, 4, {'bias': False}], nn.Linear(3, 4, bias=False), [rand(2, 3)])
layer('Embedding', [7, 3, {'paddingIdx': 2}], nn.Embedding(7, 3, padding_idx=2), [torch.tensor([[0, 2, 6], [3, 3, 1]])])
for mode in ('sum', 'mean', 'max'):
    layer('EmbeddingBag', [7, 3, {'mode': mode, 'paddingIdx': 2}], nn.EmbeddingBag(7, 3, mode=mode, padding_idx=2), [torch.tensor([[0, 2, 6], [3, 3, 1]])])
layer('Conv1d', [4, 6, 3, {'stride': 2, 'padding': 1, 'groups': 2}], nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), [rand(2, 4, 9)])
layer('Conv1d', [2, 3, 4, {'padding': 'same', 'dilation': 2}], nn.Conv1d(2, 3, 4, padding='same', dilation=2), [rand(2, 2, 9)])
layer('Conv2d', [2, 3, [3, 2], {'stride': [1, 2], 'padding': [1, 0]}], nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(1, 0)), [rand(2, 2, 5, 6)])
for mode in ('reflect', 'replicate', 'circular'):
    layer('Conv2d', [2, 3, 3, {'padding': 1, 'paddingMode': mode}], nn.Conv2d(2, 3, 3, padding=1, padding_mode=mode), [rand(1, 2, 4, 5)])
layer('ConvTranspose1d', [3, 2, 3, {'stride': 2, 'outputPadding': 1}], nn.ConvTranspose1d(3, 2, 3, stride=2, output_padding=1), [rand(2, 3, 5)])
layer('ConvTranspose2d', [4, 2, 3, {'stride': 2, 'padding': 1, 'groups': 2}], nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, groups=2), [rand(1, 4, 3, 4)])
layer('Conv3d', [2, 3, [2, 3, 2], {'stride': [1, 2, 1], 'padding': [1, 1, 0]}], nn.Conv3d(2, 3, (2, 3, 2), stride=(1, 2, 1), padding=(1, 1, 0)), [rand(1, 2, 3, 4, 3)])
layer('ConvTranspose3d', [2, 3, 2, {'stride': 2, 'outputPadding': 1}], nn.ConvTranspose3d(2, 3, 2, stride=2, output_padding=1), [rand(1, 2, 2, 2, 3)])
layer('LayerNorm', [5], nn.LayerNorm(5), [rand(2, 3, 5)])
layer('LayerNorm', [[3, 5], {'eps': 1e-3}], nn.LayerNorm([3, 5], eps=1e-3), [rand(2, 3, 5)])
layer('RMSNorm', [5, {'eps': 1e-6}], nn.RMSNorm(5, eps=1e-6), [rand(2, 3, 5)])
layer('GroupNorm', [2, 4], nn.GroupNorm(2, 4), [rand(2, 4, 3)])
layer('InstanceNorm2d', [3, {'affine': True}], nn.InstanceNorm2d(3, affine=True), [rand(2, 3, 4, 2)])
layer('InstanceNorm1d', [3], nn.InstanceNorm1d(3), [rand(2, 3, 5)])
for train in (True, False):
    layer('BatchNorm1d', [3], nn.BatchNorm1d(3), [rand(4, 3)], train=train, calls=2 if train else 1, state_after=True)
    layer('BatchNorm2d', [3, {'momentum': 0.25, 'eps': 1e-3}], nn.BatchNorm2d(3, momentum=0.25, eps=1e-3), [rand(2, 3, 3, 2)], train=train, state_after=True)
    layer('BatchNorm3d', [2], nn.BatchNorm3d(2), [rand(2, 2, 2, 3, 2)], train=train, state_after=True)
for name in ('ReLU', 'ReLU6', 'GELU', 'SiLU', 'Sigmoid', 'Tanh', 'Mish', 'SELU', 'Softplus', 'Softsign', 'Hardsigmoid', 'Hardswish', 'LogSigmoid'):
    layer(name, [], getattr(nn, name)(), [rand(3, 5, lo=-4, hi=8)])
layer('GELU', [{'approximate': 'tanh'}], nn.GELU(approximate='tanh'), [rand(3, 5, lo=-4, hi=4)])
layer('ELU', [0.7], nn.ELU(0.7), [rand(3, 5, lo=-3, hi=3)])
layer('LeakyReLU', [0.2], nn.LeakyReLU(0.2), [rand(3, 5)])
layer('PReLU', [3], nn.PReLU(3), [rand(2, 3, 2)])
layer('Softmax', [1], nn.Softmax(1), [rand(2, 3, 2)])
layer('LogSoftmax', [-1], nn.LogSoftmax(-1), [rand(2, 3, 4)])
layer('GLU', [1], nn.GLU(1), [rand(2, 4, 3)])
layer('MaxPool1d', [3, {'stride': 2, 'padding': 1}], nn.MaxPool1d(3, stride=2, padding=1), [rand(2, 3, 8)])
layer('AvgPool1d', [2], nn.AvgPool1d(2), [rand(2, 3, 8)])
layer('MaxPool2d', [2], nn.MaxPool2d(2), [rand(2, 3, 5, 6)])
layer('AvgPool2d', [3, {'stride': 2, 'padding': 1}], nn.AvgPool2d(3, stride=2, padding=1), [rand(2, 3, 5, 6)])
layer('MaxPool2d', [2, {'stride': 3, 'dilation': 2, 'ceilMode': True}], nn.MaxPool2d(2, stride=3, dilation=2, ceil_mode=True), [rand(1, 2, 7, 8)])
layer('AvgPool2d', [3, {'stride': 2, 'padding': 1, 'countIncludePad': False}], nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), [rand(1, 2, 5, 6)])
layer('MaxPool3d', [2], nn.MaxPool3d(2), [rand(1, 2, 4, 5, 4)])
layer('AvgPool3d', [2, {'stride': 1}], nn.AvgPool3d(2, stride=1), [rand(1, 2, 3, 3, 4)])
layer('AdaptiveMaxPool2d', [[2, 3]], nn.AdaptiveMaxPool2d((2, 3)), [rand(2, 3, 5, 7)])
layer('AdaptiveAvgPool3d', [2], nn.AdaptiveAvgPool3d(2), [rand(1, 2, 3, 5, 4)])
layer('AdaptiveAvgPool1d', [3], nn.AdaptiveAvgPool1d(3), [rand(2, 3, 7)])
layer('AdaptiveAvgPool2d', [[2, 3]], nn.AdaptiveAvgPool2d((2, 3)), [rand(2, 3, 5, 7)])
layer('Flatten', [], nn.Flatten(), [rand(2, 3, 4)])
layer('Unflatten', [1, [2, -1]], nn.Unflatten(1, (2, 3)), [rand(2, 6, 2)])
layer('ZeroPad2d', [[1, 0, 2, 1]], nn.ZeroPad2d((1, 0, 2, 1)), [rand(1, 2, 3, 3)])
layer('ReflectionPad2d', [1], nn.ReflectionPad2d(1), [rand(1, 2, 3, 3)])
layer('ReplicationPad2d', [2], nn.ReplicationPad2d(2), [rand(1, 2, 3, 3)])
layer('PixelShuffle', [2], nn.PixelShuffle(2), [rand(1, 8, 2, 3)])
layer('PixelUnshuffle', [2], nn.PixelUnshuffle(2), [rand(1, 2, 4, 6)])
layer('Upsample', [{'scale': 2}], nn.Upsample(scale_factor=2), [rand(1, 2, 3, 4)])
layer('Upsample', [{'size': [5, 7], 'mode': 'bilinear'}], nn.Upsample(size=(5, 7), mode='bilinear'), [rand(1, 2, 3, 4)])
seen = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]).bool()
padded = torch.tensor([[0, 0, 1], [0, 0, 0]]).bool()
layer('MultiheadAttention', [8, 2], nn.MultiheadAttention(8, 2, batch_first=True), [rand(2, 4, 8)], lambda m, x: m(x, x, x)[0])
layer('MultiheadAttention', [8, 2], nn.MultiheadAttention(8, 2, batch_first=True), [rand(2, 4, 8), rand(2, 3, 8), rand(2, 3, 8)],
      lambda m, q, k, v: m(q, k, v, attn_mask=~seen, key_padding_mask=padded)[0], options={'mask': dump(seen.int()), 'keyPadding': dump(padded.int())})
layer('MultiheadAttention', [8, 4, {'kdim': 5, 'vdim': 6, 'bias': False}], nn.MultiheadAttention(8, 4, kdim=5, vdim=6, bias=False, batch_first=True),
      [rand(2, 4, 8), rand(2, 3, 5), rand(2, 3, 6)], lambda m, q, k, v: m(q, k, v)[0])
later = torch.ones(4, 4).triu(1).bool()
for first in (False, True):
    options = {'feedforward': 12, 'dropout': 0, 'normFirst': first, 'activation': 'gelu'}
    kind = dict(dim_feedforward=12, dropout=0.0, norm_first=first, activation='gelu', batch_first=True)
    layer('TransformerEncoderLayer', [8, 2, options], nn.TransformerEncoderLayer(8, 2, **kind), [rand(2, 4, 8)], lambda m, x: m(x, src_mask=later), train=True, options={'causal': True})
    layer('TransformerDecoderLayer', [8, 2, options], nn.TransformerDecoderLayer(8, 2, **kind), [rand(2, 4, 8), rand(2, 3, 8)],
          lambda m, x, y: m(x, y, tgt_mask=later), train=True, options={'causal': True})
encoder = nn.TransformerEncoderLayer(8, 2, dim_feedforward=6, dropout=0.0, batch_first=True)
layer('TransformerEncoder', [8, 2, 2, {'feedforward': 6, 'dropout': 0, 'norm': True}], nn.TransformerEncoder(encoder, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False), [rand(1, 3, 8)], train=True)
for name in ('RNN', 'LSTM', 'GRU'):
    layer(name, [3, 4, {'layers': 2, 'bidirectional': True}], getattr(nn, name)(3, 4, num_layers=2, bidirectional=True, batch_first=True), [rand(2, 3, 3)], lambda m, x: m(x)[0])
    layer(name + 'Cell', [3, 4], getattr(nn, name + 'Cell')(3, 4), [rand(2, 3)], lambda m, x: m(x)[0] if isinstance(m(x), tuple) else m(x))

losses = []


def loss(name, torch_fn, inputs, options=None, targets=(), lists=None):
    ins = [i.clone().requires_grad_(k not in targets and i.is_floating_point()) for k, i in enumerate(inputs)]
    out = torch_fn(*ins)
    out.sum().backward()
    losses.append({'name': name, 'inputs': [dump(i) for i in inputs], 'options': options or {}, 'lists': lists or [], 'output': dump(out),
                   'grads': [dump(i.grad) if i.grad is not None else None for i in ins]})


ids = torch.tensor([1, 0, 4, 2])
probs = rand(4, 5, lo=-2, hi=2).softmax(1)
sign = torch.tensor([1.0, -1.0, 1.0, -1.0])
for r in ('mean', 'sum', 'none'):
    loss('crossEntropy', lambda x, t: F.cross_entropy(x, t, reduction=r, label_smoothing=0.1), [rand(4, 5), ids], {'reduction': r, 'labelSmoothing': 0.1})
    loss('crossEntropy', lambda x, t: F.cross_entropy(x, t, reduction=r, label_smoothing=0.2), [rand(4, 5), probs], {'reduction': r, 'labelSmoothing': 0.2}, targets=(1,))
    loss('smoothL1', lambda x, y: F.smooth_l1_loss(x, y, reduction=r, beta=0.5), [rand(4, 5), rand(4, 5)], {'reduction': r, 'beta': 0.5})
    loss('bce', lambda x, y: F.binary_cross_entropy(x, y, reduction=r), [rand(4, 5, lo=0.05, hi=0.95), rand(4, 5, lo=0, hi=1)], {'reduction': r}, targets=(1,))
    loss('klDiv', lambda x, y: F.kl_div(x, y, reduction=r), [rand(4, 5).log_softmax(1), probs], {'reduction': r}, targets=(1,))
    loss('cosineEmbedding', lambda a, b, y: F.cosine_embedding_loss(a, b, y, margin=0.1, reduction=r), [rand(4, 5), rand(4, 5), sign], {'reduction': r, 'margin': 0.1}, targets=(2,))
    loss('tripletMargin', lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=0.8, reduction=r), [rand(4, 5), rand(4, 5), rand(4, 5)], {'reduction': r, 'margin': 0.8})
    loss('marginRanking', lambda a, b, y: F.margin_ranking_loss(a, b, y, margin=0.3, reduction=r), [rand(4), rand(4), sign], {'reduction': r, 'margin': 0.3}, targets=(2,))
    loss('hingeEmbedding', lambda x, y: F.hinge_embedding_loss(x, y, margin=0.5, reduction=r), [rand(4), sign], {'reduction': r, 'margin': 0.5}, targets=(1,))
    loss('multiMargin', lambda x, t: F.multi_margin_loss(x, t, p=2, margin=0.6, reduction=r), [rand(4, 5), ids], {'reduction': r, 'p': 2, 'margin': 0.6})
    loss('poissonNll', lambda x, y: F.poisson_nll_loss(x, y, reduction=r), [rand(4, 5), rand(4, 5, lo=0, hi=5).round()], {'reduction': r}, targets=(1,))
    loss('gaussianNll', lambda m, y, v: F.gaussian_nll_loss(m, y, v, reduction=r), [rand(4, 5), rand(4, 5), rand(4, 5, lo=0.2, hi=2)], {'reduction': r})
    labels = [[1, 2, 2], [3], [2, 1]]
    loss('ctc', lambda x: F.ctc_loss(x.log_softmax(-1), torch.tensor([1, 2, 2, 3, 2, 1]), [7, 5, 6], [3, 1, 2], reduction=r), [rand(7, 3, 5, lo=-2, hi=2)], {'reduction': r}, lists=[labels, [7, 5, 6]])
loss('ctc', lambda x: F.ctc_loss(x.log_softmax(-1), torch.tensor([1, 1, 3]), [2, 2], [2, 1], zero_infinity=True), [rand(2, 2, 5)], {'zeroInfinity': True}, lists=[[[1, 1], [3]], [2, 2]])
loss('klDiv', lambda x, y: F.kl_div(x, y, reduction='batchmean', log_target=True), [rand(4, 5).log_softmax(1), rand(4, 5).log_softmax(1)], {'reduction': 'batchmean', 'logTarget': True}, targets=(1,))
hot = F.one_hot(torch.tensor([0, 3]), 4).double()
loss('klDiv', lambda x, y: F.kl_div(x, y, reduction='batchmean'), [rand(2, 4).log_softmax(1), hot], {'reduction': 'batchmean'}, targets=(1,))
loss('tripletMargin', lambda a, p, n: F.triplet_margin_loss(a, p, n, swap=True, p=1), [rand(4, 5), rand(4, 5), rand(4, 5)], {'swap': True, 'p': 1})


def focal(x, y):  # the published formula: there is none in PyTorch itself
    p = torch.sigmoid(x)
    t = p * y + (1 - p) * (1 - y)
    return ((0.3 * y + 0.7 * (1 - y)) * (1 - t) ** 1.5 * F.binary_cross_entropy_with_logits(x, y, reduction='none')).mean()


loss('focal', focal, [rand(4, 5, lo=-3, hi=3), rand(4, 5, lo=0, hi=1).round()], {'gamma': 1.5, 'alpha': 0.3}, targets=(1,))

optimizers = []


def optimizer(name, make, options, shape=(3, 4), steps=5, groups=None):
    ps = [rand(*shape), rand(*shape)] if groups else [rand(*shape)]
    params = [nn.Parameter(p.clone()) for p in ps]
    opt = make([{'params': [p], **g} for p, g in zip(params, groups['torch'])] if groups else params)
    grads = [[rand(*shape) for _ in params] for _ in range(steps)]
    after = []
    for gs in grads:
        for p, g in zip(params, gs):
            p.grad = g.clone()
        opt.step()
        after.append([dump(p) for p in params])
    case = {'name': name, 'options': options, 'params': [dump(p) for p in ps], 'grads': [[dump(g) for g in gs] for gs in grads], 'after': after}
    if groups:
        case['groups'] = groups['ours']
    optimizers.append(case)


O = torch.optim
optimizer('SGD', lambda p: O.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), {'learningRate': 0.1, 'momentum': 0.9, 'nesterov': True, 'weightDecay': 0.01})
optimizer('SGD', lambda p: O.SGD(p, lr=0.1, momentum=0.5, dampening=0.3), {'learningRate': 0.1, 'momentum': 0.5, 'dampening': 0.3})
optimizer('Adam', lambda p: O.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1), {'learningRate': 0.01, 'amsgrad': True, 'weightDecay': 0.1})
optimizer('AdamW', lambda p: O.AdamW(p, lr=0.01), {'learningRate': 0.01},
          groups={'torch': [{'weight_decay': 0.0}, {'lr': 0.05, 'betas': (0.8, 0.9)}], 'ours': [{'weightDecay': 0}, {'learningRate': 0.05, 'beta1': 0.8, 'beta2': 0.9}]})
optimizer('RMSprop', lambda p: O.RMSprop(p, lr=0.01, momentum=0.9), {'learningRate': 0.01, 'momentum': 0.9})
optimizer('Adagrad', lambda p: O.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.2), {'learningRate': 0.1, 'learningRateDecay': 0.1, 'weightDecay': 0.01, 'initialAccumulator': 0.2})
optimizer('Adadelta', lambda p: O.Adadelta(p, lr=0.5, weight_decay=0.01), {'learningRate': 0.5, 'weightDecay': 0.01})
optimizer('Adamax', lambda p: O.Adamax(p, lr=0.01, weight_decay=0.01), {'learningRate': 0.01, 'weightDecay': 0.01})
optimizer('NAdam', lambda p: O.NAdam(p, lr=0.01, weight_decay=0.01), {'learningRate': 0.01, 'weightDecay': 0.01})
optimizer('NAdam', lambda p: O.NAdam(p, lr=0.01, weight_decay=0.01, decoupled_weight_decay=True), {'learningRate': 0.01, 'weightDecay': 0.01, 'decoupled': True})
optimizer('RAdam', lambda p: O.RAdam(p, lr=0.01, weight_decay=0.01), {'learningRate': 0.01, 'weightDecay': 0.01}, steps=8)
optimizer('RAdam', lambda p: O.RAdam(p, lr=0.01, betas=(0.9, 0.9), weight_decay=0.1, decoupled_weight_decay=True), {'learningRate': 0.01, 'beta2': 0.9, 'weightDecay': 0.1, 'decoupled': True}, steps=8)
optimizer('Adafactor', lambda p: O.Adafactor(p, lr=0.1, weight_decay=0.01), {'learningRate': 0.1, 'weightDecay': 0.01})
optimizer('Adafactor', lambda p: O.Adafactor(p, lr=0.1), {'learningRate': 0.1}, shape=(6,))
# PyTorch iterates in bfloat16, of which two digits are left: here in double, as everything else.
bfloat16, torch.Tensor.bfloat16 = torch.Tensor.bfloat16, lambda t: t.clone()
optimizer('Muon', lambda p: O.Muon(p, lr=0.1), {'learningRate': 0.1}, shape=(6, 4))
optimizer('Muon', lambda p: O.Muon(p, lr=0.1, nesterov=False, adjust_lr_fn='match_rms_adamw'), {'learningRate': 0.1, 'nesterov': False, 'adjust': 'rms'}, shape=(3, 5))
torch.Tensor.bfloat16 = bfloat16

# L-BFGS asks for the loss itself: a least-squares problem with a bend.
A, y, start = rand(6, 3), rand(6), rand(3)
w = nn.Parameter(start.clone())
lbfgs = O.LBFGS([w], lr=0.5, max_iter=4, history_size=3)
after, values = [], []


def closure():
    lbfgs.zero_grad()
    out = (((A @ w).tanh() - y) ** 2).mean()
    out.backward()
    return out


for _ in range(3):
    values.append(float(lbfgs.step(closure).detach()))
    after.append(dump(w))
lbfgs_case = {'a': dump(A), 'y': dump(y), 'start': dump(start), 'options': {'learningRate': 0.5, 'maxIterations': 4, 'history': 3}, 'after': after, 'values': values}

schedules = []


def schedule(name, args, make, steps=12):
    opt = O.SGD([nn.Parameter(torch.zeros(1))], lr=0.4)
    s = make(opt)
    values = []
    for _ in range(steps):
        values.append(opt.param_groups[0]['lr'])
        opt.step()
        s.step()
    schedules.append({'name': name, 'args': args, 'base': 0.4, 'values': values})


L = O.lr_scheduler
schedule('stepDecay', [3, 0.5], lambda o: L.StepLR(o, 3, 0.5))
schedule('multiStepDecay', [[2, 7], 0.5], lambda o: L.MultiStepLR(o, [2, 7], 0.5))
schedule('exponentialDecay', [0.9], lambda o: L.ExponentialLR(o, 0.9))
schedule('cosineDecay', [11, 0.25], lambda o: L.CosineAnnealingLR(o, 11, eta_min=0.1))
schedule('cosineRestarts', [3, 2, 0.25], lambda o: L.CosineAnnealingWarmRestarts(o, 3, 2, eta_min=0.1))
schedule('polynomialDecay', [10, 2], lambda o: L.PolynomialLR(o, 10, 2.0))
schedule('linearDecay', [8, 0.1], lambda o: L.LinearLR(o, 1.0, 0.1, 8))
measures = [3, 2, 2.1, 2.2, 2.05, 1.9999, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0]
opt = O.SGD([nn.Parameter(torch.zeros(1))], lr=0.4)
plateau = L.ReduceLROnPlateau(opt, factor=0.5, patience=1, cooldown=1)
rates = []
for m in measures:
    plateau.step(m)
    rates.append(opt.param_groups[0]['lr'])

index = {'source': f'PyTorch {torch.__version__}', 'layers': layers, 'losses': losses, 'optimizers': optimizers, 'lbfgs': lbfgs_case,
         'schedules': schedules, 'plateau': {'options': {'factor': 0.5, 'patience': 1, 'cooldown': 1}, 'base': 0.4, 'measures': measures, 'rates': rates}}
with open(OUT, 'w') as f:
    json.dump(index, f, allow_nan=False, separators=(',', ':'))
PACK = '''const { brotliCompressSync } = require('node:zlib'); const fs = require('node:fs');
for (const f of process.argv.slice(1)) { fs.writeFileSync(f + '.br', brotliCompressSync(fs.readFileSync(f))); fs.unlinkSync(f); }'''
subprocess.run(['node', '-e', PACK, OUT], check=True)
print(len(layers), 'layers,', len(losses), 'losses,', len(optimizers) + 1, 'optimizers,', len(schedules) + 1, 'schedules')
