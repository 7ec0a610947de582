"""Writes test/golden/families/prompted.*, small models that are asked about pictures (by points and boxes, by words) run
by transformers, and prompted-seen.json.br, what they and their processors make of a picture:
python scripts/golden-prompted.py [NAME...]"""
import base64, importlib, io, json, os, sys, tempfile
scenes = importlib.import_module('golden-scenes')
import numpy as np, torch  # noqa: E402
from transformers import AutoModelForMaskGeneration  # noqa: E402

families, pictures = scenes.families, scenes.pictures
SAM = dict(
    vision_config=dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, image_size=32, patch_size=4,
                       window_size=3, global_attn_indexes=[1], output_channels=16, num_pos_feats=8, mlp_ratio=1.5),
    prompt_encoder_config=dict(hidden_size=16, image_size=32, patch_size=4, mask_input_channels=8),
    mask_decoder_config=dict(hidden_size=16, num_attention_heads=2, mlp_dim=24, iou_head_hidden_dim=12))
SAM_B = dict(
    vision_config=dict(SAM['vision_config'], window_size=4, qkv_bias=False, use_abs_pos=False, use_rel_pos=False,
                       hidden_act='relu', layer_norm_eps=1e-2, mlp_dim=40),
    prompt_encoder_config=dict(SAM['prompt_encoder_config'], hidden_act='relu', layer_norm_eps=1e-2),
    mask_decoder_config=dict(SAM['mask_decoder_config'], hidden_act='gelu', attention_downsample_rate=4,
                             num_hidden_layers=3, num_multimask_outputs=2, iou_head_depth=4, layer_norm_eps=1e-2))
PROMPTED = {
    AutoModelForMaskGeneration: {'sam': ('sam', SAM), 'sam-b': ('sam', SAM_B)},
}
# Things that are asked for, in pixels of the picture that the model takes.
POINTS = [[[3.0, 20.5], [17.0, 9.0]], [[30.0, 1.0], [12.5, 12.5]]]
ON = [[1, 0], [1, 1]]
BOXES = [[4.0, 2.0, 20.0, 30.0], [0.0, 11.0, 31.0, 13.5]]


def masks_of(model, seed):
    g = torch.Generator().manual_seed(seed)
    pixels, rough = torch.randn(1, 3, 32, 32, generator=g), torch.randn(1, 1, 32, 32, generator=g)
    points, on, boxes = torch.tensor([POINTS]), torch.tensor([ON]), torch.tensor([BOXES])
    asks = {
        'points': dict(input_points=points, input_labels=on), 'boxes': dict(input_boxes=boxes),
        'both': dict(input_points=points, input_labels=on, input_boxes=boxes), 'nothing': {},
        'rough': dict(input_points=points[:, :1], input_labels=on[:, :1], input_masks=rough, multimask_output=False),
    }
    found = {'pixels': pixels, 'rough': rough}
    with torch.no_grad():
        for name, given in asks.items():
            out = model(pixels, **given)
            found[f'{name}/masks'], found[f'{name}/scores'] = out.pred_masks[0], out.iou_scores[0]
    return found


ANSWERS = {AutoModelForMaskGeneration: masks_of}


def answers_of(make):
    def answers(model, _, seed):
        found = ANSWERS[make](model, seed)
        return {k: v.numpy().astype(np.int32 if v.dtype == torch.int64 else np.float32) for k, v in found.items()}
    return answers


def masks_seen(model, picture):
    transformers = pictures.transformers
    fields = dict(size=dict(longest_edge=30), pad_size=dict(height=32, width=32))
    processor = transformers.SamImageProcessorPil(**fields)
    whole = transformers.SamProcessor(processor)
    point, box = [[[11, 30], [40, 8]]], [[[5.0, 3.5, 33.0, 29.0]]]
    found = []
    for asked in (dict(input_points=point, input_labels=[[1, 0]]), dict(input_boxes=box)):
        given = whole(picture, return_tensors='pt', **asked)
        with torch.no_grad():
            out = model(**{k: v.float() if v.is_floating_point() else v for k, v in given.items()
                           if not k.endswith('sizes')})
        masks = processor.post_process_masks(out.pred_masks, given['original_sizes'], given['reshaped_input_sizes'])[0]
        found.append({'scores': out.iou_scores[0, 0].tolist(),
                      'masks': [''.join(str(int(v)) for v in mask.flatten()) for mask in masks[0]]})
    values = given['pixel_values']
    return {'file': {**fields, 'image_processor_type': 'SamImageProcessor'}, 'shape': list(values.shape),
            'pixels': values.flatten().tolist()[::37], 'answer': found}


SEEN = {'sam': masks_seen}


def seen(name):
    """A picture through a processor, a model and what the processor makes of its answers."""
    make = next(m for m, table in PROMPTED.items() if name in table)
    packed = open(os.path.join(families.GOLDEN, 'prompted.json.br'), 'rb').read()
    spec = json.loads(families.node('brotliDecompressSync', packed))['models'][name]
    with tempfile.TemporaryDirectory() as at:
        json.dump(spec['config'], open(os.path.join(at, 'config.json'), 'w'))
        tensors = {k: families.made(s) for k, s in spec['tensors'].items()}
        families.save_file(tensors, os.path.join(at, 'model.safetensors'), metadata={'format': 'pt'})
        model = make.from_pretrained(at, dtype=torch.float32).eval()
    picture = families.painted(53, 37, 7)
    file = io.BytesIO()
    picture.save(file, 'PNG')
    return {'picture': base64.b64encode(file.getvalue()).decode(), **SEEN[name](model, picture)}


def main():
    for make, table in PROMPTED.items():
        names = [n for n in table if not sys.argv[1:] or n in sys.argv[1:]]
        if names:
            families.run('prompted', table, {}, names, make, answers_of(make))
    text = json.dumps({n: seen(n) for n in SEEN}, separators=(',', ':')).encode()
    open(os.path.join(families.GOLDEN, 'prompted-seen.json.br'), 'wb').write(families.node('brotliCompressSync', text))


if __name__ == '__main__':
    main()
